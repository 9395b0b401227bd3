"""From operations to committed files."""
