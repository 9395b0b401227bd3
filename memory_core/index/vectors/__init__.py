"""Vectors: the log that is their source, the exact scan, and Chroma beside it, in a folder or on a server."""
