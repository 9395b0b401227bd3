"""The disposable index: catalog, tokens, vectors."""
