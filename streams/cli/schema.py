"""`streams schema check | accept`: the gate before a changed event contract. Calls `streams.ops.schemas`."""

from __future__ import annotations

import typer

app = typer.Typer(help="The event contracts and their history.", no_args_is_help=True)


@app.command()
def check() -> None:
    """Fail if a schema in schemas/ does not go together with its history, or was changed without a history file."""
    from streams.errors import Incompatible
    from streams.kafka.codec import schemas_folder
    from streams.ops import schemas

    if faults := schemas.check(schemas_folder()):
        raise Incompatible("; ".join(faults))
    typer.echo("every schema goes together with its whole history")


@app.command()
def accept() -> None:
    """Add a history file for each changed schema, if it is compatible."""
    from streams.kafka.codec import schemas_folder
    from streams.ops import schemas

    made = schemas.accept(schemas_folder())
    for file in made:
        typer.echo(f"made {file}")
    if not made:
        typer.echo("no schema has changed")
