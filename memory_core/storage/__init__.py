"""Files, locks and the ledger: the only floor that writes memory."""
