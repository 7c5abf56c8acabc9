"""The turns of bench/runtime.py: each is a process of its own, that measures one thing once and prints one number."""
