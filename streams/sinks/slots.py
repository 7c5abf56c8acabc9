"""Worker slots: the stable names by which the group knows its members.

A slot is held by an advisory lock of a session of its own: it ends with the worker, however that ends, and a second
launcher on the same host takes the next free ones. Called by streams/ops/worker.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from streams.config import Settings
from streams.database import connect


@contextmanager
def slot(config: Settings, group: str) -> Iterator[str]:
    """Hold the lowest free slot of this host; gives its name, `<group>-<host>-<number>`. Raises Unavailable."""
    with connect(config, autocommit=True, application_name="distributary-slot") as session:
        for number in count():
            name = f"{group}-{socket.gethostname()}-{number}"
            taken = session.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name]).fetchone()
            if taken is not None and taken[0]:
                yield name
                return
