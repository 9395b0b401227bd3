"""Pure arithmetic of ranking."""
