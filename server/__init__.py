"""Thin skins over ``memory_core``: the MCP tools, the transports and the command line."""
