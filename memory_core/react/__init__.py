"""The update loop: prefetch, reason and act, operations. Never writes."""
