"""Re-scoring: begin a run, see how it goes, resume it, cancel it. Called by `streams rescore`.

A run and the events of all its chunks are one transaction; the relay carries them to the re-scorer's workers
(streams/ops/rescorer.py). How a run stands is derived from its chunks and from the re-scorer's progress.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from streams.core import rescore as core
from streams.core.rescore import Finished, Pace
from streams.core.times import duration
from streams.database import Connection, queries
from streams.errors import RescoreRefused
from streams.outbox.save import Encode
from streams.topics import RESCORE, RESCORER

_SQL = queries(Path(__file__).parent / "sql" / "rescore.sql")

# failed: nothing is left but chunks that were given up.
State = Literal["running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for. `model_version` is the scores' key; documents saved after `as_of` are not in it."""

    run_id: int
    model: str
    model_version: str
    as_of: datetime
    began_at: datetime  # or resumed
    deadline_at: datetime | None
    cancelled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of it so far. A document is scored, failed, or has moved on: saved again or deleted meanwhile."""

    chunks: int
    chunks_done: int
    chunks_retrying: int
    chunks_dead: int
    documents: int
    documents_done: int
    scored: int
    failed: int
    scores: int
    last_at: datetime | None  # when the last chunk was done
    obstacle: str | None  # what a chunk fails at

    @property
    def documents_left(self) -> int:
        """Documents that are still to be done."""
        return self.documents - self.documents_done

    @property
    def moved_on(self) -> int:
        """Documents that were the ranker's by the time that they were to be scored."""
        return max(0, self.documents_done - self.scored - self.failed)


@dataclass(frozen=True, slots=True)
class Status:
    """How a run stands. Without a chunk that is done there is no ETA, and `pace` is that of the model's last run.

    Both are None when it is over; `deadline_seconds` are from now on, None without a deadline.
    """

    run: Run
    counts: Counts
    state: State
    pace: Pace | None
    eta_seconds: float | None
    deadline_seconds: float | None

    @property
    def workers_needed(self) -> int | None:
        """For the deadline; None without one, without a pace, or if no number of workers can meet it."""
        if self.pace is None or self.deadline_seconds is None:
            return None
        return core.workers_needed(self.pace, self.counts.documents_left, self.deadline_seconds, RESCORE.partitions)

    def as_json(self) -> dict[str, Any]:
        """All of it, flat."""
        pace = {"documents_per_second": None, "workers": None} if self.pace is None else asdict(self.pace)
        return {
            **asdict(self.run),
            "state": self.state,
            **asdict(self.counts),
            "moved_on": self.counts.moved_on,
            **pace,
            "seconds_per_document": self.pace and self.pace.seconds_per_document,
            "eta_seconds": self.eta_seconds,
            "deadline_seconds": self.deadline_seconds,
            "workers_needed": self.workers_needed,
            "deadline": deadline_sentence(self),
        }


# -------------------------------------------------------------------------------------------- what operators do


def start(
    connection: Connection,
    encode: Encode,
    model: str,
    model_version: str,
    documents_a_chunk: int,
    deadline: timedelta | None = None,
) -> tuple[int, int]:
    """Begin a run over all living documents; its number, and how many chunks it has.

    Raises RescoreRefused while another run of the model is not done, or if there are no documents; psycopg.Error.
    """
    with connection.transaction():
        _refuse_beside_another(connection, model_version, None)
        run_id, as_of = _SQL.add_run(connection, model=model, model_version=model_version, deadline=deadline)
        _SQL.add_chunks(connection, run_id=run_id, documents=documents_a_chunk, as_of=as_of)
        chunks = _send(connection, encode, run_id)
        if not chunks:
            raise RescoreRefused("there are no documents to score")
        return run_id, chunks


def resume(connection: Connection, encode: Encode, run_id: int | None) -> tuple[int, int]:
    """Send the chunks that are not done again, of a run that was cancelled, has failed or lost its events.

    What is at work at this moment is not done twice. Gives the run's number and how many were sent. Raises
    RescoreRefused if there is no such run, if it is done, or while another run of its model is not.
    """
    with connection.transaction():
        run = find(connection, run_id)
        _refuse_beside_another(connection, run.model_version, run.run_id)
        _SQL.resume(connection, run_id=run.run_id)
        _SQL.send_again(connection, run_id=run.run_id)
        chunks = _send(connection, encode, run.run_id)
        if not chunks:
            raise RescoreRefused(f"run {run.run_id} is done, so there is nothing to resume")
        return run.run_id, chunks


def cancel(connection: Connection, run_id: int | None) -> Status:
    """Let no more chunks begin; those at work are finished, and count. Raises RescoreRefused if it is over."""
    with connection.transaction():
        found = status(connection, run_id)
        if found.state in ("done", "cancelled"):
            raise RescoreRefused(f"run {found.run.run_id} is {found.state} already")
        _SQL.cancel(connection, run_id=found.run.run_id)
    return status(connection, found.run.run_id)


def _refuse_beside_another(connection: Connection, model_version: str, run_id: int | None) -> None:
    """From here to the end of the transaction this is the only one that asks."""
    _SQL.lock(connection, model_version=model_version)
    if other := _SQL.open_run(connection, model_version=model_version, run_id=run_id):
        number, model, began_at = other
        raise RescoreRefused(
            f"run {number} of {model} ({model_version}) began at {began_at:%Y-%m-%d %H:%M} UTC and is not done:"
            f" wait for it, or run `streams rescore cancel {number}`"
        )


def _send(connection: Connection, encode: Encode, run_id: int) -> int:
    """The events of all chunks that are not done, into the outbox; how many."""
    names = ("event_id", "run_id", "chunk", "sent", "model", "model_version", "after_id", "last_id", "as_of")
    events = [dict(zip(names, row, strict=True)) for row in _SQL.to_send(connection, run_id=run_id)]
    rows = [
        {
            "event_id": event.pop("event_id"),
            "topic": RESCORE.name,
            "key": core.key(run_id, event["chunk"], RESCORE.partitions),
            "payload": encode(RESCORE, event),
        }
        for event in events
    ]
    _SQL.send(connection, rows)
    return len(rows)


# ---------------------------------------------------------------------------------------------- how it stands


def find(connection: Connection, run_id: int | None) -> Run:
    """The run of this number, or the newest. Raises RescoreRefused if there is none."""
    wanted = _SQL.newest_run(connection) if run_id is None else run_id
    row = None if wanted is None else _SQL.run(connection, run_id=wanted)
    if row is None:
        raise RescoreRefused("there is no re-score yet" if run_id is None else f"there is no re-score {run_id}")
    return Run(*row)


def status(connection: Connection, run_id: int | None) -> Status:
    """How the run stands now; without a number, the newest. Raises RescoreRefused if there is none."""
    run = find(connection, run_id)
    counts = Counts(*_SQL.counts(connection, run_id=run.run_id, reader=RESCORER))
    state = _state(run, counts)
    now: datetime = _SQL.now(connection)
    finished = _finished(connection, run.run_id) if state == "running" else []
    pace = core.pace(finished, now.timestamp())
    until = None if run.deadline_at is None else (run.deadline_at - now).total_seconds()
    return Status(
        run=run,
        counts=counts,
        state=state,
        pace=pace or (_pace_before(connection, run) if state == "running" else None),
        eta_seconds=_eta_seconds(connection, run, counts, pace) if pace else None,
        deadline_seconds=until,
    )


def errors(connection: Connection, run_id: int, rows_max: int | None = None) -> list[tuple[str, int, str]]:
    """The documents that could not be scored: id, version and why."""
    return list(_SQL.errors(connection, run_id=run_id, rows_max=rows_max))


def deadline_sentence(status: Status) -> str | None:
    """Whether the deadline will be met, and by how many workers it would; None without one, or when all is over."""
    if status.deadline_seconds is None or status.state != "running":
        return None
    if status.deadline_seconds <= 0:
        return f"the deadline passed {duration(-status.deadline_seconds)} ago"
    if status.pace is None:
        return f"the deadline is in {duration(status.deadline_seconds)}; no rate was measured yet to hold it to"
    when, a_document = f"the deadline in {duration(status.deadline_seconds)}", status.pace.seconds_per_document
    return f"{when} {_verdict(status, status.pace)}, at {a_document:.2g} s a document and worker"


def _verdict(status: Status, pace: Pace) -> str:
    needed = status.workers_needed
    if needed is None:
        return f"cannot be met: {RESCORE.partitions} workers, the most that can work at once, are too few"
    if status.eta_seconds is None:
        return f"needs {needed} workers, if it goes as the last run of this model did"
    if needed > pace.workers:
        return f"will be missed: it needs {needed} workers, and {pace.workers} work"
    return f"will be met: it needs {needed} workers, and {pace.workers} work"


def _state(run: Run, counts: Counts) -> State:
    if counts.chunks_done == counts.chunks:
        return "done"
    if run.cancelled_at is not None:
        return "cancelled"
    return "failed" if counts.chunks_done + counts.chunks_dead == counts.chunks else "running"


def _pace_before(connection: Connection, run: Run) -> Pace | None:
    """Of the last run of the model: the best guess until a chunk of this one is done."""
    before = _SQL.measured_run(connection, model_version=run.model_version, run_id=run.run_id)
    finished = [] if before is None else _finished(connection, before)
    return core.pace(finished, finished[-1].at) if finished else None


def _finished(connection: Connection, run_id: int) -> list[Finished]:
    return [Finished(*row) for row in _SQL.finished(connection, run_id=run_id, rows_max=core.CHUNKS_MEASURED)]


def _eta_seconds(connection: Connection, run: Run, counts: Counts, pace: Pace) -> float:
    busiest: int = _SQL.busiest(
        connection,
        run_id=run.run_id,
        reader=RESCORER,
        topic=RESCORE.name,
        partitions=RESCORE.partitions,
        rows_max=core.CHUNKS_MEASURED,
    )
    return core.eta_seconds(pace, counts.documents_left, busiest)
