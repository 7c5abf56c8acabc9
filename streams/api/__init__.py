"""The HTTP API: saves go in by it, jobs and results are read by it."""
