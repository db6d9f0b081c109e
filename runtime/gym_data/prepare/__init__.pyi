from .asset_files import fetch as fetch
from .asset_files import install as install
from .collate import Collation as Collation
from .collate import Prepared as Prepared
from .collate import Recipe as Recipe
from .sources import Wanted as Wanted
