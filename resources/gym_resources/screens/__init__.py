"""A browser as a tool set: see `ScreenSession` and `SiteSession`."""

from gym_resources.screens.screen_session import ScreenSession as ScreenSession
from gym_resources.screens.screen_session import SiteSession as SiteSession
