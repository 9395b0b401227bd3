"""Finding memories and packing them into context."""
