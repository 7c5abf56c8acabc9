"""How the command line ends when something is raised."""

from __future__ import annotations

import pytest
from psycopg import errors

from streams.cli import main
from streams.errors import UnknownGroup

ENDS = [
    (UnknownGroup("there is no consumer group x"), 8, "there is no consumer group x"),
    (errors.AdminShutdown("terminating\nhint"), 3, "Postgres went away, or gave the command up: terminating"),
    (errors.NumericValueOutOfRange("bigint out of range"), 2, "Postgres does not take that: bigint out of range"),
    (errors.UndefinedTable("no x"), 3, "the database is not set up (no x): run `streams setup`"),
]


@pytest.mark.parametrize(("raised", "code", "said"), ENDS, ids=lambda value: type(value).__name__)
def test_what_servers_and_people_do_wrong_is_one_line(
    raised: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _raising(raised, monkeypatch)
    with pytest.raises(SystemExit) as end:
        main.main()
    assert (end.value.code, capsys.readouterr().err) == (code, f"error: {said}\n")


@pytest.mark.parametrize("raised", [ZeroDivisionError(), errors.SyntaxError("our SQL")])
def test_a_fault_of_ours_keeps_its_traceback(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    _raising(raised, monkeypatch)
    with pytest.raises(type(raised)):
        main.main()


def _raising(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def app() -> None:
        raise error

    monkeypatch.setattr(main, "app", app)
