"""A telephone with settings, contacts, messages and reminders, whose state is compared with milestones."""
