"""Plain columns for tables of thousands of rows, which must not be cut when piped. Called by `streams lag | replay`."""

from __future__ import annotations

from collections.abc import Sequence


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[str]) -> str:
    """The table as text: every column as wide as its widest cell, numbers to the right, `left` ones to the left.

    A column whose cells are all empty is left out. What a terminal would obey or hide, as the name of a group of others
    may have it, is escaped.
    """
    shown = [n for n, head in enumerate(heads) if not rows or any(row[n] for row in rows)]
    table = [[_visible(row[n]) for n in shown] for row in (heads, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    sides = ["<" if heads[n] in left else ">" for n in shown]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in table
    )


def _visible(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cell)
