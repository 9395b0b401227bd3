"""Models that turn text into vectors or judge a pair: which there are, how each is loaded and calibrated."""
