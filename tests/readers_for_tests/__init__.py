"""Readers for tests that need worker processes: found by entry points, as an installed package's are.

Their groups begin with TEST_GROUP_PREFIX, so that every test has its own; see `Rig.command`.
"""

import os

PREFIX = os.environ.get("TEST_GROUP_PREFIX", "test-")
