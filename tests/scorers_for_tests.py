"""A scorer for tests, found by entry point in worker processes: see `Rig.command`."""

from __future__ import annotations

import time

VERSION = "strict-1"
SECONDS_A_DOCUMENT = 0.01


class Strict:
    """The share of the query's length in the text's; refuses what is malformed, and takes its time."""

    model_version = VERSION

    def __call__(self, queries: list[str], text: str) -> list[float]:
        time.sleep(SECONDS_A_DOCUMENT)
        if "malformed" in text:
            raise ValueError("that is no text")
        return [len(query) / len(text) for query in queries]
