"""Views that hosts of MCP Apps show beside a tool's result."""
