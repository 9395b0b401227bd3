"""From a question to hits, and from hits to a context."""
