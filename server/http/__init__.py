"""Serving over HTTP: who may come in, and what a request may cost."""
