"""What everything needs: memories, commits, the store, the index, search, text, models."""
