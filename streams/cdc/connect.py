"""Kafka Connect's REST interface, as far as one connector with one task needs it.

Called by setup, the doctor and the outbox's repair; calls the worker over HTTP. A worker that is down, starting or
rebalancing is `Unavailable`; a worker that refuses is `RelayError`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from streams.config import Settings
from streams.errors import RelayError, Unavailable

# A worker that rebalances answers 409, one that starts 404 or 503: both pass within seconds.
_BUSY = (httpx.codes.CONFLICT, httpx.codes.SERVICE_UNAVAILABLE)
_PAUSE_SECONDS = 0.1
_REASON_CHARACTERS_MAX = 240


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """`connector` and `task` in Connect's words: RUNNING, FAILED, STOPPED, PAUSED, UNASSIGNED; no task is None."""

    connector: str
    task: str | None = None
    trace: str = ""  # of whichever failed

    @property
    def running(self) -> bool:
        """Whether the connector and its task run, by their own account."""
        return self.connector == self.task == "RUNNING"

    @property
    def failed(self) -> bool:
        return "FAILED" in (self.connector, self.task)

    @property
    def stopped(self) -> bool:
        """Stopped by request, and no task is left."""
        return self.connector == "STOPPED" and self.task is None

    @property
    def undecided(self) -> bool:
        """Handed to no worker, as for a moment after each return of the broker: it may be to run, or to stand still."""
        return self.connector == "UNASSIGNED" and self.task in (None, "UNASSIGNED")

    @property
    def reason(self) -> str:
        """The trace's first line, and its root cause if that is another."""
        lines = self.trace.strip().splitlines()
        causes = [line for line in lines if line.startswith("Caused by:")]
        return "; ".join(_cut(line) for line in (*lines[:1], *causes[-1:]))

    def __str__(self) -> str:
        return f"connector {self.connector}, task {self.task or 'none'}"


class Connect:
    """One Connect worker (or any of a cluster); safe for threads."""

    def __init__(self, config: Settings, seconds_max: float = 30.0) -> None:
        self._url = config.connect_url.rstrip("/")
        self._seconds_max = seconds_max
        self._http = httpx.Client(base_url=self._url, timeout=seconds_max)

    def plugins(self) -> set[str]:
        """The classes of the connectors that the worker has."""
        return {str(plugin["class"]) for plugin in self._call("GET", "/connector-plugins").json()}

    def config(self, name: str) -> dict[str, str] | None:
        """The connector's configuration as it was put, without its name; None if there is no such connector."""
        answer = self._call("GET", f"/connectors/{name}/config", absent_ok=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return {key: value for key, value in answer.json().items() if key != "name"}

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector, or change it; a stopped one stays stopped."""
        self._call("PUT", f"/connectors/{name}/config", dict(config))

    def create_stopped(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector without starting it: its offsets can be deleted before it reads anything."""
        self._call("POST", "/connectors", {"name": name, "config": dict(config), "initial_state": "STOPPED"})

    def state(self, name: str) -> ConnectorState | None:
        """What the connector and its task say of themselves; None if there is no such connector."""
        answer = self._call("GET", f"/connectors/{name}/status", absent_ok=True)
        return None if answer.status_code == httpx.codes.NOT_FOUND else _state(answer.json())

    def restart(self, name: str, *, only_failed: bool = True) -> None:
        """Restart whatever of the connector and its task has failed, or both."""
        self._call("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")

    def restart_task(self, name: str) -> None:
        """Restart the task, failed or not."""
        self._call("POST", f"/connectors/{name}/tasks/0/restart")

    def stop(self, name: str) -> None:
        """Ask for the task to end; the connector and its offsets stay."""
        self._call("PUT", f"/connectors/{name}/stop")

    def resume(self, name: str) -> None:
        """Run a stopped or paused connector again."""
        self._call("PUT", f"/connectors/{name}/resume")

    def delete_offsets(self, name: str) -> None:
        """Forget how far the connector came; it must be stopped."""
        self._call("DELETE", f"/connectors/{name}/offsets")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Connect:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, absent_ok: bool = False
    ) -> httpx.Response:
        """One request, repeated while the worker is busy and time is left."""
        deadline = time.monotonic() + self._seconds_max
        while True:
            answer = self._request(method, path, body)
            if answer.is_success or (absent_ok and answer.status_code == httpx.codes.NOT_FOUND):
                return answer
            if answer.status_code not in _BUSY or time.monotonic() > deadline:
                raise self._refusal(answer)
            time.sleep(_PAUSE_SECONDS)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        try:
            return self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise Unavailable(f"Kafka Connect at {self._url} does not answer: {error}") from error

    def _refusal(self, answer: httpx.Response) -> RelayError | Unavailable:
        what = f"Kafka Connect at {self._url} answered {answer.status_code}: {_message(answer)}"
        return Unavailable(what) if answer.status_code in _BUSY else RelayError(what)


def _cut(line: str) -> str:
    """A line of a trace without what fills a screen: Debezium prints whole objects into its messages."""
    return line if len(line) <= _REASON_CHARACTERS_MAX else f"{line[:_REASON_CHARACTERS_MAX]}…"


def _state(status: Mapping[str, Any]) -> ConnectorState:
    connector, tasks = status["connector"], status["tasks"]
    failed = [part for part in (connector, *tasks) if part["state"] == "FAILED"]
    return ConnectorState(
        connector=connector["state"],
        task=tasks[0]["state"] if tasks else None,
        trace=failed[0].get("trace", "") if failed else "",
    )


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"]).splitlines()[0]
    except (ValueError, KeyError, IndexError):
        return answer.text[:200]
