"""The fleet: the supervisor, its workers, the channel between them, and the ledger of what they share."""
