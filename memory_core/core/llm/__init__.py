"""Language models that the server may call."""
