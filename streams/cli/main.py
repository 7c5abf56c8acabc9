"""The `streams` command: one file a verb, registered here by one line each.

Called from the shell. Every error that we raise on purpose ends as one sentence on stderr and an exit code.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from streams.cli import (
    analytics,
    api,
    demo,
    dlq,
    doctor,
    down,
    exercise,
    lab,
    lag,
    logs,
    new,
    outbox,
    replay,
    replay_run,
    rescore,
    run,
    save,
    schema,
    setup,
    status,
    up,
)
from streams.errors import ConfigError, StackError, StreamsError, Unavailable

app = typer.Typer(
    name="streams",
    help="One save, one log, many readers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

# One line a verb. Its module imports what is heavy inside the function, so that every command starts quickly.
app.command()(demo.demo)
app.command()(up.up)
app.command()(down.down)
app.command()(status.status)
app.command()(save.save)
app.command()(api.api)
app.command()(run.run)
app.command()(analytics.analytics)
app.command()(logs.logs)
app.command()(lag.lag)
replay_run.add_to(replay.app)
app.add_typer(replay.app, name="replay")
app.add_typer(rescore.app, name="rescore")
app.add_typer(exercise.app, name="exercise")
app.add_typer(lab.app, name="lab")
app.add_typer(new.app, name="new")
app.command()(setup.setup)
app.command()(doctor.doctor)
app.add_typer(outbox.app, name="outbox")
app.add_typer(dlq.app, name="dlq")
app.add_typer(schema.app, name="schema")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"streams {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return version("distributary")
    except PackageNotFoundError:
        return "unknown (not installed)"


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; the process ends with the error's exit code."""
    try:
        app()
    except Exception as raised:
        error = _as_ours(raised)
        if error is None:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _as_ours(error: Exception) -> StreamsError | None:
    """The error itself, or what it means that Postgres ended a command in the middle; None for a fault of ours."""
    if isinstance(error, StreamsError):
        return error
    psycopg = sys.modules.get("psycopg")  # too heavy to import for every command
    if psycopg is None or not isinstance(error, psycopg.Error):
        return None
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
        return StackError(f"the database is not set up ({said}): run `streams setup`")
    if isinstance(error, psycopg.OperationalError):
        return Unavailable(f"Postgres went away, or gave the command up: {said}")
    return ConfigError(f"Postgres does not take that: {said}") if isinstance(error, psycopg.DataError) else None


if __name__ == "__main__":
    main()
