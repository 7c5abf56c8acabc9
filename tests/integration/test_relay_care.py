"""The care for the connector on the real stack: a task that has failed runs again by itself, if that can be."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from streams.cdc import connector
from streams.cdc.connect import Connect
from streams.config import Settings
from streams.core.restarts import Restarts
from streams.ops.relay_care import Carer, caring
from tests.integration.test_doctor import fail_task
from tests.relay_rig import Events, doctor, own_topic
from tests.support import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def events(stack: Settings) -> Iterator[Events]:
    with own_topic(stack, f"test-care-{os.urandom(3).hex()}") as events:
        yield events


def test_a_task_that_has_failed_runs_again_by_itself(events: Events, caplog: pytest.LogCaptureFixture) -> None:
    """The cause has passed, and Connect would leave the task as it is for good."""
    fail_task(events)
    with caplog.at_level(logging.WARNING), caring(events.config), Connect(events.config) as worker:
        events.emit(3)
        eventually(lambda: (state := worker.state(connector.NAME)) and state.running, 60, "the task's restart")
        events.all_arrive()
    (said,) = (text for text in caplog.messages if connector.NAME in text)
    assert "and was restarted" in said
    assert "publication" in said.lower()
    assert doctor().exit_code == 0


def test_one_process_cares(stack: Settings) -> None:
    first, second = (Carer(stack, Restarts()) for _ in range(2))
    with first, second:
        assert first.is_chosen()
        assert not second.is_chosen()
