"""Memories on the move: export, import, backup, restore."""
