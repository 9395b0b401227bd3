"""Pure merging: patches, merge operations, rendering."""
