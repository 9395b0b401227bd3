"""Language models: one protocol, structured answers, and a file for each provider."""
