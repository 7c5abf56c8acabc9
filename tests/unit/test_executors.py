"""Executors of every kind: order in a lane, batches, timeouts, what a handler is told of its attempt."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams import Context, DocumentSaved, Upsert, reader
from streams.contract import Reader
from streams.core.outcomes import Done, Expired, Failure
from streams.runtime.executors import CALLS_AT_ONCE, executor_for
from tests.executing import attempts, children, collect, document, executing, failure, lane, row, run
from tests.readers_for_tests import kinds
from tests.support import eventually

act = reader(group="thread", max_age_seconds=kinds.AGE_SECONDS_MAX)(kinds.act)


@reader(group="async", max_age_seconds=kinds.AGE_SECONDS_MAX)
async def act_async(doc: DocumentSaved) -> Upsert:
    await asyncio.sleep(0)
    return kinds.act(doc)


SINGLE = {"thread": act, "async": act_async, "process": kinds.in_process}
BATCHES = {
    "thread, batches": kinds.in_batches,
    "async, batches": kinds.in_batches_async,
    "process, batches": kinds.in_batches_in_process,
}


def each(readers: dict[str, Reader]) -> Any:
    return pytest.mark.parametrize("declared", readers.values(), ids=readers.keys())


# ------------------------------------------------------------------------------------------------ every kind


@each(SINGLE | BATCHES)
def test_a_lane_runs_in_order_up_to_its_first_failure(declared: Reader) -> None:
    titles = ["", "", "reject", "", ""]
    lanes = [
        lane(*(document(name, version, title) for version, title in enumerate(titles, start=1))) for name in "abcdef"
    ]
    with executing(declared) as executor:
        ran = run(executor, *lanes)
        for name in "abcdef":
            of_lane = [(version, type(attempt)) for one, version, attempt in ran if one == name]
            assert of_lane == [(1, Done), (2, Done), (3, Failure)]
        failed = {failure(attempt) for *_, attempt in ran if isinstance(attempt, Failure)}
        assert failed == {("Reject", "told so", True)}
        assert len(run(executor, *lanes)) == 12  # the rest was left to the loop, which may submit the lanes again


@each(SINGLE | BATCHES)
def test_a_lane_that_was_emptied_ends(declared: Reader) -> None:
    emptied, other = lane(document("a")), lane(document("b"))
    emptied.records.clear()
    with executing(declared) as executor:
        assert [name for name, *_ in run(executor, emptied, other)] == ["b"]


@each(SINGLE | BATCHES)
def test_what_can_become_of_a_document(declared: Reader) -> None:
    late = datetime.now(UTC) - timedelta(seconds=kinds.AGE_SECONDS_MAX + 1)
    with executing(declared) as executor:
        good, left, deleted, expired = attempts(
            executor,
            document("good"),
            document("left", title="leave", body="4"),
            document("deleted", type="deleted", saved_at=late),
            document("expired", title="leave", saved_at=late),
        )
    assert row(good)["version"] == 1
    assert (row(good)["pid"] == os.getpid()) == (declared.runs_as != "process")
    assert failure(left) == ("SystemExit", "4", False)
    assert isinstance(deleted, Done)
    assert deleted.effects[0].rows == {}  # type: ignore[union-attr]
    assert isinstance(expired, Expired)


@each(SINGLE | BATCHES)
def test_a_stopped_executor_leaves_no_thread_and_no_process_at_work(declared: Reader) -> None:
    with executing(declared) as executor:
        run(executor, lane(document()))
        executor.submit([lane(document(title="sleep", body="1"))])
    assert not children()
    eventually(lambda: not any(thread.name.startswith("handler") for thread in threading.enumerate()))


def test_what_setup_raises_comes_out_of_start() -> None:
    def setup() -> None:
        raise ConnectionRefusedError("the model's host is down")

    for handler in (lambda doc, made: None, _takes_two):
        with pytest.raises(ConnectionRefusedError, match="host is down"):
            executor_for(reader(group="g", setup=setup)(handler)).start()


async def _takes_two(doc: DocumentSaved, made: Any) -> None:
    return None


# --------------------------------------------------------------------------------------------- concurrency


@pytest.mark.parametrize(("asked", "batch", "calls"), [(3, 1, 3), (3, 2, 3), (None, 1, CALLS_AT_ONCE)])
@pytest.mark.parametrize("form", ["thread", "async"])
def test_concurrency_is_how_many_calls_there_are_at_once(form: str, asked: Any, batch: int, calls: int) -> None:
    begun, go_on = deque[int](), threading.Event()

    def handle(docs: Any) -> Any:
        begun.append(1)
        assert go_on.wait(30)
        return [None] * len(docs) if batch > 1 else None

    async def handle_async(docs: Any) -> Any:
        begun.append(1)
        assert await asyncio.to_thread(go_on.wait, 30)
        return [None] * len(docs) if batch > 1 else None

    declared = reader(group="g", concurrency=asked, batch=batch)(handle if form == "thread" else handle_async)
    with executing(declared) as executor:
        executor.submit([lane(document(str(number))) for number in range(60)])
        eventually(lambda: len(begun) >= calls)
        time.sleep(0.1)  # for one more than allowed to begin
        assert len(begun) == calls
        go_on.set()


def test_processes_are_as_many_as_processors_or_as_told() -> None:
    with executing(kinds.as_many_as_processors) as executor:
        cores = os.cpu_count() or 1
        ran = attempts(executor, *(document(str(n), title="sleep", body="0.2") for n in range(4 * cores)))
    assert len({row(attempt)["pid"] for attempt in ran}) == cores
    with executing(kinds.in_process) as executor:
        ran = attempts(executor, *(document(str(n), title="sleep", body="0.2") for n in range(8)))
    assert len({row(attempt)["pid"] for attempt in ran}) == 2


# ------------------------------------------------------------------------------------------------- batches


class Gate:
    """A batch handler that notes its calls, and whose first one waits until all lanes are ready."""

    def __init__(self, batch: int, **options: Any) -> None:
        self.calls: list[list[tuple[str, int]]] = []
        self.open = threading.Event()
        self.reader = reader(group="g", batch=batch, concurrency=1, **options)(self._handle)
        self.deleted: list[str] = []

    def _handle(self, docs: list[DocumentSaved]) -> list[Any]:
        self.calls.append([(doc.document_id, doc.version) for doc in docs])
        assert self.open.wait(30)
        return kinds.act_on_all(docs)


def test_a_batch_is_up_to_so_many_heads_that_are_ready() -> None:
    gate = Gate(batch=3)
    lanes = [lane(*(document(name, version) for version in (1, 2, 3))) for name in "abcde"]
    with executing(gate.reader) as executor:
        executor.submit([first := lane(document("first"))])
        eventually(lambda: gate.calls == [[("first", 1)]])  # it does not wait for more
        executor.submit(lanes)
        gate.open.set()
        assert len(collect(executor, first, *lanes)) == 16
    assert [len(call) for call in gate.calls] == [1, 3, 3, 3, 3, 3]
    assert all(len({name for name, _ in call}) == len(call) for call in gate.calls)  # never two of one lane
    ran = [one for call in gate.calls[1:] for one in call]
    assert all([version for one, version in ran if one == name] == [1, 2, 3] for name in "abcde")


@each(BATCHES)
def test_one_bad_document_in_a_batch_fails_alone(declared: Reader) -> None:
    with executing(declared) as executor:
        attempts(executor, document("first"))
        ran = attempts(executor, *(document(name, title="reject" if name == "c" else "") for name in "abcd"))
    assert failure(ran[2]) == ("Reject", "told so", True)
    assert all(row(attempt)["version"] == 1 for attempt in (*ran[:2], ran[3]))


@each(BATCHES)
@pytest.mark.parametrize(
    ("title", "failed"),
    [
        ("raise all", ("ValueError", "all 1 of them", False)),
        ("lose one", ("Reject", "the handler returned 0 results for 1 document(s), not a list as long", True)),
    ],
)
def test_a_call_that_fails_as_a_whole_is_made_for_each_alone(
    declared: Reader, title: str, failed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with executing(declared) as executor:
        lanes = [lane(document(name, title=title if name == "b" else "")) for name in "abcd"]
        lanes.insert(0, lane(document("first", title="sleep", body="0.5")))  # the others are together then
        executor.submit(lanes[:1])
        executor.submit(lanes[1:])
        ran = {name: attempt for name, _, attempt in collect(executor, *lanes)}
    assert failure(ran["b"]) == failed
    assert [row(ran[name])["together"] for name in "acd"] == [1, 1, 1]
    assert f"{declared.group}: a call with 4 documents failed: {failed[0]}: " in caplog.text


def test_no_list_and_no_effect_are_named() -> None:
    def handle(docs: list[DocumentSaved]) -> Any:
        return {"single": {}, "worse": "text"}.get(docs[0].document_id, [5] * len(docs))

    with executing(reader(group="g", batch=2)(handle)) as executor:
        single, worse, number = attempts(executor, document("single"), document("worse"), document("number"))
    assert failure(single)[1] == "the handler returned dict for 1 document(s), not a list as long"
    assert failure(worse)[1] == "the handler returned str for 1 document(s), not a list as long"
    assert failure(number)[1] == "the handler returned int, not effects"


def test_deletions_go_to_on_delete_one_by_one() -> None:
    deleted: list[str] = []
    gate = Gate(batch=4, on_delete=lambda doc: deleted.append(doc.document_id))
    with executing(gate.reader) as executor:
        gate.open.set()
        types = {"a": "saved", "b": "deleted", "c": "saved", "d": "deleted"}
        ran = attempts(executor, *(document(name, type=kind) for name, kind in types.items()))
    assert all(isinstance(attempt, Done) for attempt in ran)
    assert sorted(deleted) == ["b", "d"]
    assert {name for call in gate.calls for name, _ in call} == {"a", "c"}


# ------------------------------------------------------------------------------------------------ timeouts


@pytest.mark.parametrize("declared", [kinds.hasty, kinds.hasty_async], ids=["process", "async"])
def test_a_handler_that_takes_too_long_has_failed_for_now(declared: Reader) -> None:
    with executing(declared) as executor:
        before, slow, after = (
            run(executor, lane(document(name, title=title, body="30")))[0][2]
            for name, title in (("before", ""), ("slow", "sleep"), ("after", ""))
        )
    assert failure(slow) == ("TimeoutError", "the handler took longer than 0.5 s, its timeout_seconds", False)
    assert (row(after)["pid"] != row(before)["pid"]) == (declared.runs_as == "process")  # killed


def test_a_timeout_of_the_handlers_own_stays_its_own() -> None:
    async def handle(doc: DocumentSaved) -> None:
        raise TimeoutError("the model is slow")

    with executing(reader(group="g", timeout_seconds=30)(handle)) as executor:
        (attempt,) = attempts(executor, document())
    assert failure(attempt) == ("TimeoutError", "the model is slow", False)


@pytest.mark.parametrize("then", ["return", "raise"])
def test_a_coroutine_that_fights_its_cancellation_has_failed_all_the_same(then: str) -> None:
    async def handle(doc: DocumentSaved) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if then == "raise":
                raise RuntimeError("cancelled") from None

    with executing(reader(group="g", timeout_seconds=0.1)(handle)) as executor:
        (attempt,) = attempts(executor, document())
    assert failure(attempt)[0] == "TimeoutError"


def test_one_slow_document_in_a_batch_of_coroutines_times_out_alone() -> None:
    async def handle(docs: list[DocumentSaved]) -> list[None]:
        if any(doc.title == "sleep" for doc in docs):
            await asyncio.sleep(30)
        return [None for _ in docs]

    with executing(reader(group="g", batch=4, concurrency=1, timeout_seconds=0.3)(handle)) as executor:
        ran = attempts(executor, *(document(name, title="sleep" if name == "b" else "") for name in "abcd"))
    assert failure(ran.pop(1))[0] == "TimeoutError"
    assert all(isinstance(attempt, Done) for attempt in ran)


def test_a_thread_is_only_told() -> None:
    def handle(doc: DocumentSaved, ctx: Context) -> Upsert:
        assert ctx.deadline is not None
        eventually(lambda: datetime.now(UTC) > ctx.deadline, 5)
        return Upsert("k", {"late": True})

    with executing(reader(group="g", timeout_seconds=0.1)(handle)) as executor:
        (attempt,) = attempts(executor, document())
    assert row(attempt) == {"late": True}


# ------------------------------------------------------------------------------------------------- context


def tells(doc: DocumentSaved, ctx: Context) -> Upsert:
    return Upsert("k", {"ctx": ctx})


async def tells_async(doc: DocumentSaved, ctx: Context) -> Upsert:
    return Upsert("k", {"ctx": ctx})


def tells_after_setup(doc: DocumentSaved, made: Any, *, ctx: Context) -> Upsert:
    return Upsert("k", {"ctx": ctx})


def tells_list(docs: list[DocumentSaved], ctx: list[Context]) -> list[Upsert]:
    assert len(docs) == len(ctx)
    return [Upsert("k", {"ctx": one}) for one in ctx]


async def tells_list_async(docs: list[DocumentSaved], ctx: list[Context]) -> list[Upsert]:
    return tells_list(docs, ctx)


FORMS: list[tuple[Any, dict[str, Any]]] = [
    (tells, {}),
    (tells_async, {}),
    (tells_after_setup, {"setup": dict}),
    (tells_list, {"batch": 3}),
    (tells_list_async, {"batch": 3}),
]
forms = pytest.mark.parametrize(("handler", "options"), FORMS, ids=lambda part: getattr(part, "__name__", ""))


def told(declared: Reader, doc: DocumentSaved, failed: int = 0, is_replay: bool = False) -> Context:
    """The context that a handler got."""
    one = lane(doc)
    one.records[0].attempts, one.records[0].is_replay = failed, is_replay
    with executing(declared) as executor:
        ((_, _, attempt),) = run(executor, one)
    context: Context = row(attempt)["ctx"]
    return context


@forms
def test_a_handler_is_told_of_its_attempt(handler: Any, options: dict[str, Any]) -> None:
    declared = reader(group="told", **options)(handler)
    first = told(declared, document("a b", 7))
    assert first == Context(idempotency_key="told:a%20b:7", attempt=1, deadline=None, is_replay=False)
    later = told(declared, document("a b", 7), failed=2, is_replay=True)
    assert later == Context(idempotency_key="told:a%20b:7", attempt=3, deadline=None, is_replay=True)


@forms
def test_the_deadline_is_the_earlier_of_timeout_and_age(handler: Any, options: dict[str, Any]) -> None:
    saved_at = datetime.now(UTC) - timedelta(seconds=10)
    declared = reader(group="told", timeout_seconds=100, max_age_seconds=60, **options)(handler)
    assert told(declared, document(saved_at=saved_at)).deadline == saved_at + timedelta(seconds=60)
    declared = reader(group="told", timeout_seconds=20, max_age_seconds=60, **options)(handler)
    began, context, ended = datetime.now(UTC), told(declared, document(saved_at=saved_at)), datetime.now(UTC)
    assert context.deadline is not None
    assert began <= context.deadline - timedelta(seconds=20) <= ended


def test_a_deletion_has_no_age_and_on_delete_may_be_told_too() -> None:
    declared = reader(group="told", max_age_seconds=60, on_delete=tells)(lambda doc: None)
    assert told(declared, document(type="deleted", version=4)) == Context(idempotency_key="told:d:4")
    declared = reader(group="told", timeout_seconds=60, on_delete=tells_async)(tells_async)
    assert told(declared, document(type="deleted")).deadline is not None


def test_on_delete_is_not_told_because_the_handler_is() -> None:
    declared = reader(group="told", on_delete=lambda doc: Upsert("k", {"ctx": None}))(tells)
    assert told(declared, document(type="deleted")) is None


def test_an_age_past_the_calendar_is_no_deadline() -> None:
    assert told(reader(group="told", max_age_seconds=1e15)(tells), document()).deadline is None


def test_each_alone_after_a_batch_that_timed_out_has_its_own_deadline() -> None:
    async def handle(docs: list[DocumentSaved], ctx: list[Context]) -> list[Upsert]:
        if len(docs) > 1:
            await asyncio.sleep(30)
        return await tells_list_async(docs, ctx)

    with executing(reader(group="g", batch=2, timeout_seconds=0.5)(handle)) as executor:
        began = datetime.now(UTC)
        ran = attempts(executor, document("a"), document("b"))
    for attempt in ran:
        assert row(attempt)["ctx"].deadline >= began + timedelta(seconds=1)


def test_a_process_is_told_the_same() -> None:
    one = lane(document("ö", 2))
    one.records[0].attempts, one.records[0].is_replay = 1, True
    with executing(kinds.told) as executor:
        began = datetime.now(UTC)
        ((_, _, attempt),) = run(executor, one)
    seen = row(attempt)
    assert (seen["attempt"], seen["replay"]) == (2, True)
    assert seen["key"] == f"{kinds.told.group}:%C3%B6:2"
    assert timedelta(0) <= seen["until"] - timedelta(seconds=60) - began < timedelta(seconds=30)
