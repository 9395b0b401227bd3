"""Memories of other programs: their formats, and how they come in."""
