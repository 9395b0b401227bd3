"""What becomes of memories as time goes by: expired, finished, condensed, archived; each step a commit of its own."""
