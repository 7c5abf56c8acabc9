"""Find the readers: the modules of streams/readers and the entry points of the group `streams.readers`.

Called by the command line, setup and whoever runs a reader; imports the readers' modules, which is cheap: models and
clients are made in their `setup`. A file that does not import is named, and is in the way of those only who need it:
`find` fails for a reader that is missing and merely warns of the rest; `all_readers` needs every one.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import logging
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from streams.contract import Reader
from streams.errors import ReaderError
from streams.topics import RESCORER

PACKAGE = "streams.readers"
ENTRY_POINTS = "streams.readers"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Survey:
    """All that was found: the readers by group, and one sentence for each thing that is wrong."""

    readers: dict[str, Reader]
    faults: tuple[str, ...]


class _Source(NamedTuple):
    """A place that may hold readers: how it is called in a message, and how to load it."""

    name: str
    load: Callable[[], Any]


def find(names: Iterable[str], package: str = PACKAGE) -> list[Reader]:
    """The readers of these groups, in this order.

    Raises ReaderError for a name that is not there, with the nearest one and with what could not be loaded.
    """
    survey = look(package)
    found = [_named(name, survey) for name in names]
    for fault in survey.faults:
        _log.warning("%s", fault)
    return found


def all_readers(package: str = PACKAGE) -> list[Reader]:
    """Every reader, by group. Raises ReaderError if any file or entry point is at fault."""
    survey = look(package)
    if survey.faults:
        raise ReaderError("; ".join(survey.faults))
    return list(survey.readers.values())


def look(package: str = PACKAGE) -> Survey:
    """What there is, faults included, without raising: for listings. Two readers of one group are both left out."""
    faults: list[str] = []
    places: dict[str, dict[int, tuple[Reader, str]]] = defaultdict(dict)
    for source in [*_modules(package), *_entry_points()]:
        try:
            loaded = source.load()
        # A reader's file may raise anything while it is imported, and may call sys.exit().
        except (Exception, SystemExit) as error:  # noqa: BLE001
            faults.append(f"{source.name} cannot be loaded: {_reason(error)}")
            continue
        for reader in _readers_in(loaded):
            places[reader.group].setdefault(id(reader), (reader, source.name))  # imported twice is declared once
    if RESCORER in places:
        faults.append(f"the group {RESCORER!r} is the re-scorer's own: {_where(places.pop(RESCORER))} must use another")
    faults += [_twice(group, found) for group, found in places.items() if len(found) > 1]
    single = {group: next(iter(found.values()))[0] for group, found in sorted(places.items()) if len(found) == 1}
    return Survey(single, tuple(faults))


def _modules(package: str) -> Iterator[_Source]:
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if not info.name.startswith("_"):
            place = f"{getattr(info.module_finder, 'path', package)}/{info.name}{'' if info.ispkg else '.py'}"
            yield _Source(place, partial(importlib.import_module, f"{package}.{info.name}"))


def _entry_points() -> Iterator[_Source]:
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        owner = entry.dist.name if entry.dist else "an unnamed package"
        yield _Source(f"the entry point {entry.name} = {entry.value} of {owner}", partial(_loaded, entry))


def _loaded(entry: importlib.metadata.EntryPoint) -> Any:
    value = entry.load()
    if isinstance(value, (Reader, ModuleType)):
        return value
    raise ReaderError(f"it is of type {type(value).__name__}, neither a reader nor a module")


def _readers_in(loaded: Any) -> list[Reader]:
    values = [loaded] if isinstance(loaded, Reader) else list(vars(loaded).values())
    return [value for value in values if isinstance(value, Reader)]


def _twice(group: str, found: dict[int, tuple[Reader, str]]) -> str:
    return f"the reader group {group!r} is declared more than once: in {_where(found)}"


def _where(found: dict[int, tuple[Reader, str]]) -> str:
    return " and ".join(place for _, place in found.values())


def _reason(error: BaseException) -> str:
    where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}{where}" if message else type(error).__name__


def _named(name: str, survey: Survey) -> Reader:
    if name in survey.readers:
        return survey.readers[name]
    near = difflib.get_close_matches(name, survey.readers, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(survey.readers) or 'none'}"
    raise ReaderError("; ".join([f"there is no reader {name!r}: {hint}", *survey.faults]))
