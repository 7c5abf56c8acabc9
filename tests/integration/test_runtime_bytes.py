"""What is saved is what every reader sees, byte for byte; a hundred saves of one document are a hundred versions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from streams.contract import Reader
from streams.readers.indexer import index
from streams.readers.ranker import rank
from streams.readers.summarizer import summarize
from streams.topics import BODY_BYTES_MAX
from tests.readers_for_tests import plain
from tests.readers_for_tests.plain import digest
from tests.rig import Rig, catches_up, unique

TEXTS = {
    "an empty body": ("a title", ""),
    "four MiB": ("a title", "The quick brown fox. " * (BODY_BYTES_MAX // 21)),
    "four MiB of two-byte letters": ("a title", "ü" * (BODY_BYTES_MAX // 2)),
    "emoji": ("👩‍👩‍👧‍👦 🏳️‍🌈", "Zero-width joiners 👩🏽‍🚀, flags 🇩🇪🇯🇵, and 𝕄𝕒𝕥𝕙. " * 3),
    "right to left": ("عنوان المستند", "هذا نص عربي. \u202e\u2067שלום עולם\u2069 مع أرقام ١٢٣. "),
    "a long title": ("t" * 9_999 + "é", "a body"),
    "controls and line ends": ("tab\tand\x01", "\r\n\x7f\u2028\ufeff\ufffe a\u0301 á \x1b[0m\n"),
}


@pytest.fixture(scope="module")
def readers(_rig: Rig) -> Iterator[dict[str, Reader]]:
    """The built-in readers and two that record and count, at work: by name, each in a group of its own."""
    declared = {
        "summarizer": summarize,
        "ranker": rank,
        "indexer": index,
        "recorder": plain.record,
        "counter": plain.count,
    }
    made = {name: replace(one, group=unique(name)) for name, one in declared.items()}
    with _rig.forgetting(), ExitStack() as workers:
        for one in made.values():
            _rig.start_at_end(one.group)
            workers.enter_context(_rig.worker(one))
        yield made


def test_every_reader_sees_the_bytes_that_were_saved(rig: Rig, readers: dict[str, Reader]) -> None:
    names = {what: unique("bytes") for what in TEXTS}
    for what, (title, body) in TEXTS.items():
        rig.save(names[what], title=title, body=body)
    for one in readers.values():
        catches_up(rig, one.group, dict.fromkeys(names.values(), 1), 120)
    recorded = rig.output(readers["recorder"].group)
    indexed = {
        document_id: (title, content, truncated)
        for document_id, title, content, truncated in rig.rows(
            "SELECT document_id, title, content, truncated FROM readers.search_index WHERE document_id = ANY(%s)",
            list(names.values()),
        )
    }
    stored = dict(
        rig.rows("SELECT document_id, body FROM app.documents WHERE document_id = ANY(%s)", list(names.values()))
    )
    for what, (title, body) in TEXTS.items():
        seen = recorded[names[what]]
        assert (seen["title"], seen["body"]) == (digest(title), digest(body)), what
        assert digest(stored[names[what]]) == digest(body), what
        indexed_title, content, truncated = indexed[names[what]]
        assert (indexed_title, truncated) == (title, len(content) < len(f"{title}\n{body}")), what
        assert f"{title}\n{body}".startswith(content), what
        assert truncated == what.startswith("four MiB"), what
    for one in readers.values():
        assert rig.dead_letters(one.group, "error_message") == []


def test_a_hundred_saves_of_one_document_at_once(rig: Rig, readers: dict[str, Reader]) -> None:
    name = unique("hundred")
    with ThreadPoolExecutor(25) as at_once:
        saved = list(at_once.map(lambda number: rig.save(name, body=f"save {number}").version, range(100)))
    assert sorted(saved) == list(range(1, 101))
    last = f"save {saved.index(100)}"
    for one in readers.values():
        catches_up(rig, one.group, {name: 100}, 60)
        query = "SELECT completed::text FROM readers.progress WHERE reader = %s AND document_id = %s"
        assert rig.rows(query, one.group, name) == [("{[1,101)}",)]
    assert rig.output(readers["counter"].group)[f"of {name}"] == {"versions": 100}
    assert rig.output(readers["recorder"].group)[name]["body"] == digest(last)
    query = "SELECT content FROM readers.search_index WHERE document_id = %s AND version = 100"
    assert rig.rows(query, name) == [(f"a title\n{last}",)]
