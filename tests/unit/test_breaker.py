"""An outage opens the breaker; poison, low traffic and a single bad key do not."""

from __future__ import annotations

from streams.core.breaker import PROBE_SECONDS, WINDOW_SECONDS, Breaker


def failing(lanes: int, results: int, every_seconds: float = 0.05) -> Breaker:
    breaker = Breaker()
    for number in range(results):
        breaker.note(number % lanes, True, True, number * every_seconds)
    return breaker


def test_opens_on_twenty_failures_over_ten_lanes() -> None:
    assert not failing(lanes=10, results=19).is_open
    assert failing(lanes=10, results=20).is_open


def test_stays_closed_for_a_few_lanes_however_often_they_fail() -> None:
    assert not failing(lanes=9, results=200).is_open


def test_stays_closed_while_a_fifth_and_more_succeed() -> None:
    breaker = Breaker()
    for number in range(200):
        breaker.note(number, number % 4 != 0, True, number * 0.01)
    assert not breaker.is_open


def test_stays_closed_while_what_is_new_goes_well() -> None:
    """Two dozen poisoned keys fail far oftener than anything else happens."""
    breaker = Breaker()
    for number in range(1_000):
        breaker.note(number % 24, True, False, number * 0.005)
        if number % 20 == 0:
            breaker.note(f"new {number}", False, True, number * 0.005)
        assert not breaker.is_open or number < 20


def test_opens_within_a_second_of_an_outage_at_twenty_records_a_second() -> None:
    breaker = Breaker()
    for number in range(400):
        breaker.note(number, False, True, number * 0.05)
    for number in range(400, 420):
        breaker.note(number, True, True, number * 0.05)
    assert breaker.is_open


def test_stays_closed_for_poison_at_low_traffic() -> None:
    assert not failing(lanes=50, results=50, every_seconds=WINDOW_SECONDS / 10).is_open


def test_suspects_when_all_that_it_saw_failed_and_only_then() -> None:
    breaker = Breaker()
    assert not breaker.suspects(0.0)
    for lane in "aab":
        breaker.note(lane, True, True, 0.0)
        assert not breaker.suspects(0.1)
    breaker.note("c", True, True, 0.0)
    assert breaker.suspects(0.1)
    breaker.note("d", False, True, 0.2)
    assert breaker.suspects(0.3)
    breaker.note("e", False, True, 0.2)
    assert not breaker.suspects(0.3)


def test_suspects_soon_however_well_all_went_before() -> None:
    breaker = Breaker()
    for number in range(100):
        breaker.note(number, False, True, number * 0.01)
    for number in range(100, 103):
        breaker.note(number, True, True, number * 0.01)
        assert not breaker.suspects(number * 0.01)
    breaker.note(103, True, True, 1.03)
    assert breaker.suspects(1.03)


def test_suspicion_passes_with_its_window() -> None:
    breaker = Breaker()
    for lane in "abc":
        breaker.note(lane, True, True, 0.0)
    assert breaker.suspects(WINDOW_SECONDS)
    assert not breaker.suspects(WINDOW_SECONDS + 0.1)


def test_lets_one_probe_a_second_through_and_closes_at_the_first_success() -> None:
    breaker = failing(lanes=10, results=20, every_seconds=0.0)
    assert not breaker.may_probe(PROBE_SECONDS / 2)
    assert breaker.may_probe(PROBE_SECONDS)
    assert not breaker.may_probe(PROBE_SECONDS * 1.5)
    breaker.note("probe", True, True, PROBE_SECONDS * 2)
    assert breaker.is_open
    assert breaker.may_probe(PROBE_SECONDS * 2)
    breaker.note("probe", False, True, PROBE_SECONDS * 2.1)
    assert not breaker.is_open
    assert not breaker.may_probe(PROBE_SECONDS * 9)
