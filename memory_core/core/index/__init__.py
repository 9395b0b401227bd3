"""What is searched: words, vectors, the catalog."""
