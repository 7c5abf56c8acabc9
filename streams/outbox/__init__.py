"""The outbox: the save transaction, its tables and its upkeep."""
