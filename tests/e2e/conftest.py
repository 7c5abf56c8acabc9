"""Fixtures of the end-to-end tests."""

from tests.rig import _rig, rig

__all__ = ["_rig", "rig"]
