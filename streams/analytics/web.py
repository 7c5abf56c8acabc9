"""What is seen of one worker from outside: a page, the same as JSON, and metrics for Prometheus.

With several workers each shows the partitions that it has; sums of all are Prometheus's work. Called by the worker;
asks the keeper, at the moment of each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from streams.analytics.keeper import Keeper
from streams.analytics.views import HOUR_MS, MINUTE_MS, Row, Sums

MINUTES_SHOWN, HOURS_SHOWN, OWNERS_SHOWN, HOT_SHOWN = 60, 48, 20, 20
OTHERS = "(others)"  # the label of all owners past the largest: a metric must not grow with the owners


class Recovery(NamedTuple):
    """Whether the worker reads the log, or its own changelog first, and how much of that is left."""

    is_complete: bool
    remaining_records: int


class Worker(Protocol):
    """What is shown."""

    @property
    def keeper(self) -> Keeper: ...

    def recovery(self) -> Recovery: ...


def view(worker: Worker) -> dict[str, Any]:
    """All of it, as JSON can hold it."""
    views, recovery = worker.keeper.views, worker.recovery()
    return {
        "state": "reading" if recovery.is_complete else "recovering",
        "recovery_remaining_records": recovery.remaining_records,
        "partitions": worker.keeper.partitions,
        "totals": _sums(views.totals),
        "minutes": [_window(*each) for each in views.windows(MINUTE_MS, MINUTES_SHOWN)],
        "hours": [_window(*each) for each in views.windows(HOUR_MS, HOURS_SHOWN)],
        "owner_count": views.owner_count(),
        "owners": [{"owner_id": owner, **_sums(sums)} for owner, sums in views.owners(OWNERS_SHOWN)],
        "hottest": [_hot(*each) for each in views.hottest(HOT_SHOWN)],
        "unreadable": dict(worker.keeper.unreadable),
        "holes": worker.keeper.holes,
    }


def _sums(sums: Sums) -> dict[str, int]:
    return {"documents": sums.documents, "deleted": sums.deleted, "saves": sums.saves, "bytes": sums.size_bytes}


def _window(start_ms: int, sums: Sums) -> dict[str, Any]:
    """Without `saves`: a window counts the latest versions alone."""
    start = datetime.fromtimestamp(start_ms / 1000, UTC).isoformat()
    return {"start": start, "documents": sums.documents, "deleted": sums.deleted, "bytes": sums.size_bytes}


def _hot(document_id: str, row: Row) -> dict[str, Any]:
    return {"document_id": document_id, "owner_id": row.owner_id, "versions": row.version, "deleted": row.deleted}


# ------------------------------------------------------------------------------------------------------- metrics


class Metrics(Collector):
    """The worker's figures when Prometheus asks for them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        keeper, recovery = self._worker.keeper, self._worker.recovery()
        totals = keeper.views.totals
        yield _gauge("documents", "Documents that are alive.", totals.documents)
        yield _gauge("deleted_documents", "Documents that are deleted.", totals.deleted)
        yield _gauge("saves", "Saves and deletions: the sum of the documents' versions.", totals.saves)
        yield _gauge("bytes", "Bytes of title and body of the documents that are alive.", totals.size_bytes)
        yield from _owners(totals, keeper.views.owners(OWNERS_SHOWN))
        yield _gauge("partitions", "Partitions of the log that this worker has.", len(keeper.partitions))
        yield _gauge("recovering", "1 while the table is read from its changelog.", not recovery.is_complete)
        yield _gauge("recovery_remaining_records", "Records of the changelog to be read.", recovery.remaining_records)
        yield _counter("holes", "Times that events were lost on the way and read again.", keeper.holes)
        unreadable = CounterMetricFamily(_name("unreadable_events"), "Events passed over, by kind.", labels=["kind"])
        for kind, count in keeper.unreadable.items():
            unreadable.add_metric([kind], count)
        yield unreadable


def _owners(totals: Sums, largest: list[tuple[str, Sums]]) -> Iterator[Metric]:
    documents = GaugeMetricFamily(_name("owner_documents"), "Documents of the largest owners.", labels=["owner"])
    size = GaugeMetricFamily(_name("owner_bytes"), "Bytes of the largest owners.", labels=["owner"])
    for owner, sums in largest:
        documents.add_metric([owner], sums.documents)
        size.add_metric([owner], sums.size_bytes)
    documents.add_metric([OTHERS], totals.documents - sum(sums.documents for _, sums in largest))
    size.add_metric([OTHERS], totals.size_bytes - sum(sums.size_bytes for _, sums in largest))
    yield documents
    yield size


def _name(name: str) -> str:
    return f"streams_analytics_{name}"


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(_name(name), says, value=value)


def _counter(name: str, says: str, value: float) -> Metric:
    return CounterMetricFamily(_name(name), says, value=value)


# ---------------------------------------------------------------------------------------------------------- site


def make_site(worker: Worker) -> web.Application:
    """GET / for people, /views for programs, /metrics for Prometheus."""
    registry = CollectorRegistry()
    registry.register(Metrics(worker))

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=_html(view(worker)), content_type="text/html")

    async def views(_request: web.Request) -> web.Response:
        return web.json_response(view(worker))

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    site = web.Application()
    site.add_routes([web.get("/", page), web.get("/views", views), web.get("/metrics", metrics)])
    return site


def _html(shown: dict[str, Any]) -> str:
    """Plain tables, new every five seconds."""
    partitions = ", ".join(map(str, shown["partitions"])) or "none"
    state = f"{shown['state']}, {shown['recovery_remaining_records']:,} records of the changelog to read"
    unreadable = ", ".join(f"{count:,} {kind}" for kind, count in shown["unreadable"].items()) or "none"
    totals = [{name: shown["totals"][name] for name in shown["totals"]}]
    tables = {"Totals": totals, "Owners": shown["owners"], "Hot keys": shown["hottest"]}
    tables |= {"By minute of the latest save": shown["minutes"], "By hour of the latest save": shown["hours"]}
    return "".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
            "<style>body{font-family:sans-serif}td,th{padding:.1em 1em;text-align:right}</style>",
            "<title>Analytics</title><h1>Analytics</h1>",
            f"<p>{escape(state)}; partitions {escape(partitions)}; unreadable {escape(unreadable)}",
            *(f"<h2>{escape(title)}</h2>{_table(rows)}" for title, rows in tables.items() if rows),
        ]
    )


def _table(rows: list[dict[str, Any]]) -> str:
    return f"<table>{_line('th', rows[0])}{''.join(_line('td', row.values()) for row in rows)}</table>"


def _line(tag: str, cells: Iterable[Any]) -> str:
    shown = (f"{cell:,}" if type(cell) is int else str(cell) for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in shown)}</tr>"
