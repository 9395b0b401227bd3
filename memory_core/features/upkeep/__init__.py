"""What is expired, condensed and archived."""
