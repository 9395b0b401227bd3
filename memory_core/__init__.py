"""Runebook's library: templated memories as files, their index, and what moves between them."""
