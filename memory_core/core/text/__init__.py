"""What plain text says: language, times, key words, differences."""
