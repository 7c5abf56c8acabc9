"""The `streams` command: one file a verb, registered here by one line each.

Called from the shell. Every error that we raise on purpose ends as one sentence on stderr and an exit code.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from streams.cli import (
    api,
    demo,
    doctor,
    down,
    exercise,
    lag,
    logs,
    outbox,
    replay,
    run,
    save,
    schema,
    setup,
    status,
    up,
)
from streams.errors import StreamsError

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
app.command()(logs.logs)
app.command()(lag.lag)
app.add_typer(replay.app, name="replay")
app.add_typer(exercise.app, name="exercise")
app.command()(setup.setup)
app.command()(doctor.doctor)
app.add_typer(outbox.app, name="outbox")
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
    except StreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
