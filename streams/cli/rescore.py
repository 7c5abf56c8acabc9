"""`streams rescore start | status | resume | cancel`: score all documents again. Calls `streams.ops.rescore`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streams.database import Connection
    from streams.ops.rescore import Counts, Status
    from streams.outbox.save import Encode

app = typer.Typer(help="Score all documents again, with any model, in chunks.", no_args_is_help=True)

ERRORS_SHOWN = 10
DOCUMENTS_A_CHUNK_MAX = 5_000  # a chunk is one transaction, within ten seconds
_LOOK_SECONDS = 1.0
_BAR = 30

Run = Annotated[int | None, typer.Argument(help="The run's number; default the newest.", metavar="[RUN]")]
Watch = Annotated[bool, typer.Option("--watch", help="Show the progress until the run is over, or Ctrl-C.")]


@app.command()
def start(
    model: Annotated[str | None, typer.Option("--model", help="The scorer; default STREAMS_RANKER_MODEL.")] = None,
    chunk: Annotated[int, typer.Option("--chunk", help="Documents a chunk.", min=1, max=DOCUMENTS_A_CHUNK_MAX)] = 1_000,
    deadline: Annotated[
        str | None, typer.Option("--deadline", help="Say what it takes to be done in 30m, 2h, 1d.")
    ] = None,
    watch: Watch = False,
) -> None:
    """Begin a run over all documents there are; `streams run rescorer` works through it."""
    from streams.config import settings
    from streams.core.times import parse_length
    from streams.ops import rescore
    from streams.ops.lag_history import mark
    from streams.readers._scorer import scorer_named
    from streams.topics import RESCORER

    config = settings()
    length = None if deadline is None else parse_length(deadline)
    name = model or config.ranker_model
    scorer = scorer_named(name, named_by="--model")
    with _connection() as connection:
        run_id, chunks = rescore.start(connection, _encode(), name, scorer.model_version, chunk, length)
        mark(config, "rescore", RESCORER, f"run {run_id} of {scorer.model_version} began")
        typer.echo(f"Run {run_id} began, in {chunks:,} chunks. Its workers: streams run {RESCORER} --workers 2")
        if name != config.ranker_model:
            typer.echo(f"The ranker scores what is saved from now on with {config.ranker_model}, not with {name}.")
        _follow(connection, run_id, watch)


@app.command()
def status(
    run: Run = None,
    watch: Watch = False,
    errors: Annotated[int, typer.Option("--errors", help="Show so many documents with errors.", min=0)] = ERRORS_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all errors.")] = False,
) -> None:
    """Show how a run goes: how far, how fast, until when, and what could not be scored."""
    from streams.ops import rescore

    with _connection() as connection:
        if not as_json:
            _follow(connection, run, watch, errors)
            return
        found = rescore.status(connection, run)
        named = [
            {"document_id": document_id, "version": version, "error": error}
            for document_id, version, error in rescore.errors(connection, found.run.run_id)
        ]
    typer.echo(json.dumps({**found.as_json(), "errors": named}, default=str, indent=2))


@app.command()
def resume(run: Run = None, watch: Watch = False) -> None:
    """Send what is not done again: of a run that was cancelled, or that has given chunks up."""
    from streams.config import settings
    from streams.ops import rescore
    from streams.ops.lag_history import mark
    from streams.topics import RESCORER

    with _connection() as connection:
        run_id, chunks = rescore.resume(connection, _encode(), run)
        mark(settings(), "rescore", RESCORER, f"run {run_id} was resumed")
        typer.echo(f"Run {run_id} goes on: {chunks:,} chunks were sent again.")
        _follow(connection, run_id, watch)


@app.command()
def cancel(run: Run = None) -> None:
    """Let no more chunks begin; those at work are finished, and what is scored stays."""
    from streams.config import settings
    from streams.ops import rescore
    from streams.ops.lag_history import mark
    from streams.topics import RESCORER

    with _connection() as connection:
        found = rescore.cancel(connection, run)
    mark(settings(), "rescore", RESCORER, f"run {found.run.run_id} was cancelled")
    typer.echo(
        f"Run {found.run.run_id} is cancelled, with {_done(found.counts)} done; `streams rescore resume` goes on."
    )


def _connection() -> Connection:
    from streams.config import settings
    from streams.database import connect

    return connect(settings(), autocommit=True)


def _encode() -> Encode:
    from streams.config import settings
    from streams.kafka.codec import Codec
    from streams.kafka.registry import Registry

    return Codec(Registry(settings())).encode


# ------------------------------------------------------------------------------------------------ how it looks


def _follow(connection: Connection, run: int | None, watch: bool, errors_max: int = ERRORS_SHOWN) -> None:
    """Print how it stands; with `watch` once it is over, and a bar until then. Exit code 1 if chunks were given up."""
    from streams.ops import rescore

    found = rescore.status(connection, run)
    if watch:
        found = _watched(connection, found)
    named = rescore.errors(connection, found.run.run_id, errors_max)
    typer.echo("\n".join([*_lines(found), *(f"  {each[0]} version {each[1]}: {each[2]}" for each in named)]))
    if watch and found.state == "failed":
        raise typer.Exit(1)


def _watched(connection: Connection, found: Status) -> Status:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from streams.ops import rescore

    shown = TextColumn("run {task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[says]}")
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(str(found.run.run_id), total=found.counts.documents, says="")
        while found.state == "running":
            bar.update(task, completed=found.counts.documents_done, says=_going(found))
            time.sleep(_LOOK_SECONDS)
            found = rescore.status(connection, found.run.run_id)
    return found


def _lines(found: Status) -> list[str]:
    from streams.ops.rescore import deadline_sentence

    run, counts = found.run, found.counts
    part = counts.documents_done / counts.documents
    deadline = deadline_sentence(found)
    return [
        f"Run {run.run_id}: {run.model} ({run.model_version}), {found.state}, of {run.as_of:%Y-%m-%d %H:%M:%S} UTC",
        f"{'█' * int(part * _BAR):░<{_BAR}} {part:.0%}, {_done(counts)},"
        f" {counts.chunks_done:,} of {counts.chunks:,} chunks",
        f"{counts.scored:,} documents have {counts.scores:,} scores; {counts.failed:,} have errors,"
        f" {counts.moved_on:,} were saved again or deleted meanwhile",
        *([_going(found)] if found.state == "running" else []),
        *([f"Deadline: {deadline}"] if deadline else []),
        *([_trouble(found)] if counts.chunks_retrying or counts.chunks_dead else []),
    ]


def _done(counts: Counts) -> str:
    return f"{counts.documents_done:,} of {counts.documents:,} documents"


def _going(found: Status) -> str:
    """How fast, and until when."""
    from streams.core.times import duration
    from streams.topics import RESCORER

    if found.pace is None or found.eta_seconds is None:
        return f"no chunk is done yet; it takes workers: streams run {RESCORER}"
    workers = f"{found.pace.workers} worker{'s' if found.pace.workers > 1 else ''}"
    rate = f"{found.pace.documents_per_second:,.0f} documents/s by {workers}"
    return f"{rate}, done in {duration(found.eta_seconds)}"


def _trouble(found: Status) -> str:
    from streams.topics import RESCORER

    counts = found.counts
    return (
        f"{counts.chunks_retrying:,} chunks failed and are tried again, {counts.chunks_dead:,} were given up:"
        f" {counts.obstacle} (see `streams dlq list --reader {RESCORER}`; `streams rescore resume` sends them again)"
    )
