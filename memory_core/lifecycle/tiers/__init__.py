"""The tiers of conversation memory: recent pages, segments by topic, and the heat that makes memories of them."""
