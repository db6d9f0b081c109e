"""Tool packs: each module is one, with a class ``Pack``; environments take them by the module's name."""
