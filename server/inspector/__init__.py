"""The page on which a person reads and changes the memories."""
