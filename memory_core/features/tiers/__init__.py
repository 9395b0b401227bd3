"""Short-term exchanges, mid-term segments, their heat."""
