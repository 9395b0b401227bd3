"""The MCP server: tools, resources, prompts and the stdio transport."""
