"""Measurements of the running stack; each prints its figures and exits 1 if a goal is missed."""
