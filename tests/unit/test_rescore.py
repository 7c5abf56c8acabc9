"""Re-scoring without servers: rate, ETA, workers for a deadline, the spread of chunks, and what a document gives."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.contract import DocumentSaved, Reject, RetryLater
from streams.core.partitioning import key_hash
from streams.core.rescore import CHUNKS_MEASURED, Finished, Pace, eta_seconds, key, pace, workers_needed
from streams.ops.rescore import Counts, Run, Status, deadline_sentence
from streams.ops.rescorer import ROWS_MAX, Chunk, _result, _scores
from streams.readers.ranker import Ranker

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def chunks(count: int, seconds: float, workers: int = 2, documents: int = 1_000) -> list[Finished]:
    """What `workers` do side by side from time 0 on, one chunk each in `seconds`."""
    return [
        Finished((number // workers + 1) * seconds, seconds, documents, f"worker-{number % workers}")
        for number in range(count)
    ]


def test_without_a_chunk_there_is_no_pace() -> None:
    assert pace([], 5.0) is None


@pytest.mark.parametrize("count", [2, 20, 400])
def test_the_pace_is_that_of_all_workers_from_the_first_chunk_on(count: int) -> None:
    done = chunks(count, seconds=4.0)
    assert pace(done, done[-1].at) == Pace(500.0, 2)


def test_a_pace_forgets_what_is_long_past() -> None:
    slow = chunks(CHUNKS_MEASURED, seconds=40.0)
    fast = [replace(one, at=one.at + slow[-1].at) for one in chunks(CHUNKS_MEASURED, seconds=4.0)]
    assert pace([*slow, *fast], fast[-1].at) == Pace(500.0, 2)


def test_silence_lowers_the_pace() -> None:
    done = chunks(10, seconds=4.0)
    assert pace(done, done[-1].at + 20) == Pace(250.0, 2)


def test_the_eta_is_that_of_the_busiest_worker_if_it_is_known() -> None:
    assert eta_seconds(Pace(500.0, 2), 20_000, 10_000) == 40.0
    assert eta_seconds(Pace(500.0, 2), 20_000, 15_000) == 60.0
    assert eta_seconds(Pace(500.0, 2), 20_000, 0) == 40.0
    assert eta_seconds(Pace(500.0, 2), 0, 0) == 0.0


@given(
    rate=st.floats(1, 1e5),
    workers=st.integers(1, 12),
    documents=st.integers(0, 10**7),
    seconds=st.floats(1, 1e6),
    partitions=st.integers(1, 24),
)
def test_the_workers_that_are_needed_are_the_fewest_that_make_it(
    rate: float, workers: int, documents: int, seconds: float, partitions: int
) -> None:
    measured = Pace(rate, workers)

    def takes(count: int) -> float:
        """How long so many workers take, the busiest of which has the most partitions."""
        return documents * measured.seconds_per_document * math.ceil(partitions / count) / partitions

    needed = workers_needed(measured, documents, seconds, partitions)
    slack = 1 + 1e-6
    if needed is None:
        assert takes(partitions) * slack >= seconds
    else:
        assert takes(needed) <= seconds * slack
        assert needed == 1 or takes(needed - 1) * slack >= seconds


def test_no_workers_make_up_for_a_deadline_that_is_past() -> None:
    assert workers_needed(Pace(500.0, 2), 1, 0.0, 12) is None


@given(run_id=st.integers(1, 10**9), first=st.integers(0, 10**4), partitions=st.integers(1, 24))
def test_chunks_spread_evenly_over_the_partitions(run_id: int, first: int, partitions: int) -> None:
    keys = [key(run_id, first + number, partitions) for number in range(2 * partitions)]
    found = Counter(key_hash(one.encode()) % partitions for one in keys)
    assert found == dict.fromkeys(range(partitions), 2)


# ------------------------------------------------------------------------------------------------ the deadline

RUN = Run(1, "wordllama", "v1", NOW, NOW, NOW + timedelta(hours=1), None)
COUNTS = Counts(100, 50, 0, 0, 100_000, 50_000, 50_000, 0, 50_000, NOW, None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "the deadline in 1 min 40 s will be met: it needs 2 workers, and 2 work, at 0.004 s a document and worker",
        ),
        ({"deadline_seconds": 50.0}, "it needs 4 workers, and 2 work"),
        ({"deadline_seconds": 10.0}, "cannot be met: 12 workers, the most that can work at once, are too few"),
        ({"eta_seconds": None}, "needs 2 workers, if it goes as the last run of this model did"),
        ({"eta_seconds": None, "pace": None}, "no rate was measured yet"),
        ({"deadline_seconds": -90.0}, "the deadline passed 1 min 30 s ago"),
    ],
)
def test_the_deadline_is_judged_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    status = Status(RUN, COUNTS, "running", Pace(500.0, 2), 100.0, 100.0)
    assert sentence in (deadline_sentence(replace(status, **changes)) or "")


def test_there_is_nothing_to_say_of_no_deadline_or_when_all_is_over() -> None:
    status = Status(RUN, COUNTS, "running", Pace(500.0, 2), 100.0, 100.0)
    assert deadline_sentence(replace(status, deadline_seconds=None)) is None
    assert deadline_sentence(replace(status, state="done")) is None


# ------------------------------------------------------------------------------------------------ one document


def scored(scorer: Any) -> object:
    document = DocumentSaved("doc", "ann", 1, "a title", "a body", NOW)
    return _scores(Ranker(lambda _: [("q", "a query")], scorer), document)


class Scorer:
    """Gives, or raises, one thing."""

    model_version = "v1"

    def __init__(self, given: Any) -> None:
        self.given = given

    def __call__(self, queries: list[str], text: str) -> Any:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (ValueError("no\0text"), r"ValueError: no\0text"),
        ([math.nan], "ValueError: the scorer gave nan, which is no score"),
        ([], "ValueError: zip() argument 2 is shorter than argument 1"),
        (["high"], "ValueError: could not convert string to float: 'high'"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_of_it(given: Any, error: str) -> None:
    assert scored(Scorer(given)) == error


def test_a_good_one_has_a_row_a_query() -> None:
    assert scored(Scorer([0.5])) == {("doc", "q", "v1"): {"score": 0.5}}


def test_a_chunk_with_more_scores_than_a_transaction_takes_is_given_up_with_the_way_out() -> None:
    chunk = Chunk(
        document_id="1/0", owner_id="", version=1, title="", body="", saved_at=NOW,
        run_id=1, chunk=0, model="m", model_version="v1", after_id="", last_id="z",
    )  # fmt: skip
    row = {"score": 0.5}
    many: Any = {("doc", str(number), "v1"): row for number in range(ROWS_MAX)}
    assert _result(chunk, [("doc", 3, many), ("bad", 1, "no")], 2.0).versions == {"doc": 3, "bad": 1}
    with pytest.raises(Reject, match="start one with a smaller --chunk"):
        _result(chunk, [("doc", 1, many), ("another", 1, {("another", "q", "v1"): row})], 2.0)


def test_a_scorer_that_cannot_answer_now_is_no_fault_of_the_document() -> None:
    with pytest.raises(RetryLater):
        scored(Scorer(RetryLater("busy")))
