"""Tools of an MCP server as an environment's tools: see `McpEpisode`."""

from gym_resources.mcp_tools.mcp_connection import McpServer as McpServer
from gym_resources.mcp_tools.mcp_episode import McpEpisode as McpEpisode
