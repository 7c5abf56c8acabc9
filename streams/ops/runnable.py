"""What `streams run` can run: readers of documents, found by discovery, and the re-scorer, which reads chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streams.readers import discovery
from streams.topics import RESCORER

if TYPE_CHECKING:
    from streams.contract import Reader
    from streams.ops.worker import Wiring


def groups(names: Sequence[str]) -> list[str]:
    """The names, if each can be run. Raises as `discovery.find`. It loads no client: workers do, each for itself."""
    discovery.find(name for name in names if name != RESCORER)
    return list(names)


def wired(name: str) -> tuple[Reader, Wiring]:
    """The reader of this group, and what it is put together with. Raises as `discovery.find`."""
    if name == RESCORER:
        from streams.ops import rescorer

        return rescorer.rescore, rescorer.WIRING
    from streams.ops.worker import DOCUMENTS

    return discovery.find([name])[0], DOCUMENTS
