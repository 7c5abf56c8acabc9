"""The lab: the demo, the exercises, and what they need running."""
