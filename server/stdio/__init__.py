"""The protocol over standard streams or a line: frames, their repair, and what is said of those that cannot be read."""
