"""Set-up in other programs: which files a host reads, and careful edits of them that can be taken back."""
