"""`streams demo`: everything once, from an empty machine to three finished readers. Calls `streams.lab.demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli._numbers import finite

if TYPE_CHECKING:
    from rich.console import Console

    from streams.lab.demo import Findings, Numbers

INTERRUPTED_EXIT_CODE = 130
SUMMARY_LINES_MAX = 6


def demo(
    leave: Annotated[bool, typer.Option("--exit", help="Stop everything when the readers are done.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers to this file.")] = None,
    seconds_max: Annotated[
        float, typer.Option(help="How long the readers may take after the last save.", min=1, callback=finite)
    ] = 240.0,
) -> None:
    """Start everything, save some hundred real documents, and watch three readers work through them.

    Stops what it started: with --exit when the readers are done, else at Ctrl-C. The data stays for the next time.
    """
    from rich.console import Console

    from streams.errors import ConfigError
    from streams.lab.services import interruptible

    if json_file and not json_file.absolute().parent.is_dir():
        raise ConfigError(f"--json: there is no folder {json_file.absolute().parent}")
    console = Console(soft_wrap=True, highlight=False)
    try:
        with interruptible():
            _demo(console, leave, json_file, seconds_max)
    except KeyboardInterrupt:
        console.print("Interrupted, and stopped.")
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


def _demo(console: Console, leave: bool, json_file: Path | None, seconds_max: float) -> None:
    import json
    import time
    from dataclasses import asdict

    from streams.config import settings
    from streams.lab import demo

    began, config = time.monotonic(), settings()
    with demo.running(config, console) as process:
        demo.play(config, console, process, seconds_max)
        numbers = demo.count(config, time.monotonic() - began)
        if json_file:
            json_file.write_text(json.dumps(asdict(numbers)) + "\n", "utf-8")
        _print(console, numbers, demo.findings(config))
        demo.check(config, numbers)
        console.print(f"\nThe API listens at {config.api_url}, and describes itself at {config.api_url}/docs")
        if not leave:
            _wait(console)
        console.print("Stopping.")


def _wait(console: Console) -> None:
    """Until Ctrl-C, which is the way out and no failure."""
    import signal
    from contextlib import suppress

    console.print("Try `streams save README.md`, `streams lag`, `streams status`. Ctrl-C stops everything.")
    with suppress(KeyboardInterrupt):
        signal.pause()


def _print(console: Console, numbers: Numbers, findings: Findings) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("READER", "RESULT", box=None)
    table.add_row("summarizer", f"{numbers.summaries:,} summaries")
    table.add_row("ranker", f"{numbers.scores:,} scores")
    table.add_row("indexer", f"{numbers.indexed:,} indexed")
    console.print(f"\n{numbers.documents:,} documents, {numbers.dead} dead letters, {numbers.seconds:.1f} s")
    console.print(table)
    console.print("\n[bold]Some summaries[/bold]")
    for title, characters, summary in findings.summaries:
        console.print(f"{escape(title)} [dim]({characters:,} characters)[/dim]\n  {escape(summary)}")
    console.print("\n[bold]The best document for each saved query[/bold]")
    for query, title, score in findings.best_hits:
        console.print(f"{escape(query)}\n  {score:.2f}  {escape(title)}")
