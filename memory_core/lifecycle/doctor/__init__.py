"""Examining a store from all sides, and mending what can be mended."""
