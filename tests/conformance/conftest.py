"""Fixtures of the conformance tests."""

from tests.rig import _rig, rig

__all__ = ["_rig", "rig"]
