"""What changed, taking it back, and forgetting."""
