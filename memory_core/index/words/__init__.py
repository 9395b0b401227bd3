"""Words: how text becomes tokens of any language, and how a full-text index is asked for them."""
