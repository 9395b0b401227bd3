"""From a request to a receipt."""
