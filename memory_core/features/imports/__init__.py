"""Memories and conversations from other programs."""
