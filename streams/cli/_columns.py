"""Plain columns for tables of thousands of rows, which must not be cut when piped. Called by `streams lag | replay`."""

from __future__ import annotations

from collections.abc import Sequence


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[str]) -> str:
    """The table as text: every column as wide as its widest cell, numbers to the right, `left` ones to the left.

    A column whose cells are all empty is left out.
    """
    shown = [n for n, head in enumerate(heads) if not rows or any(row[n] for row in rows)]
    table = [[row[n] for n in shown] for row in (heads, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    sides = ["<" if heads[n] in left else ">" for n in shown]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in table
    )


def duration(seconds: float | None) -> str:
    """A length of time in at most two units, `?` if it is unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{int(seconds)} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
