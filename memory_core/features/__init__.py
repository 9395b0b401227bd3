"""One slice each: what can be taken out."""
