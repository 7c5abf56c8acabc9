"""What options that are numbers have in common. Called by the modules of the verbs."""

from __future__ import annotations

import math

import typer


def finite(number: float | None) -> float | None:
    """The number; `nan` and `inf` are refused, which a range lets pass or a calculation dies of."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is no number to work with.")
    return number
