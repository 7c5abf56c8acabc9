"""Change data capture: the publication, the slot, and the connector that carries the outbox to the log."""
