"""The tables of the ledger, one module each."""
