"""Values with no I/O: URIs, names, types, files, operations, conversations, changes, hits."""
