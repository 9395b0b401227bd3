"""Where texts are kept: ledger and files."""
