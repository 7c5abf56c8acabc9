"""One worker of the analytics: the app, its web view, signals and the end.

Called by `streams analytics`; calls the engine. What is asked to end does so within seconds, whatever Faust is doing:
nothing is lost by that, since the next start reads on from the position in the changelog.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from threading import Timer
from typing import Any

from aiohttp import web
from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError

from streams.analytics.engine import App, make_app
from streams.analytics.web import make_site
from streams.config import Settings
from streams.errors import StackError, Unavailable
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.stack.files import disk_errors
from streams.topics import ANALYTICS, DOCUMENTS_SAVED, Topic, changelog

log = logging.getLogger(__name__)

STOP_SECONDS_MAX = 5.0  # to write the positions and leave the group
_KILL_SECONDS = 3.0  # after that, for whatever hangs; a container is given 10 s in all
_ANSWER_SECONDS_MAX = 10.0
_REGISTRY_SECONDS_MAX = 2.0  # its calls hold up the worker, which is to hear of signals


def work(config: Settings, listener: socket.socket, group: str = ANALYTICS, source: Topic = DOCUMENTS_SAVED) -> None:
    """Run until SIGTERM or SIGINT; a second signal stops at once, with exit code 130. The view is served on `listener`.

    Raises Unavailable if Kafka does not answer or gives up on us, StackError if the topics are not as they must be.
    """
    _check_topics(config, source, changelog(group))
    with disk_errors(config.home):
        config.home.mkdir(parents=True, exist_ok=True)
    asyncio.run(_run(config, listener, group, source))


def _check_topics(config: Settings, source: Topic, table: Topic) -> None:
    """Rows stand in the partition of their event, so there must be as many of one as of the other."""
    have = TopicsAdmin(config, _ANSWER_SECONDS_MAX).partitions()
    for topic in (source, table):
        if topic.name not in have:
            raise StackError(f"the topic {topic.name} does not exist: run `streams setup`")
    if have[source.name] != have[table.name]:
        raise StackError(
            f"{source.name} has {have[source.name]} partitions, and {table.name} has {have[table.name]}: "
            "analytics needs as many of one as of the other"
        )


async def _run(config: Settings, listener: socket.socket, group: str, source: Topic) -> None:
    stop = _stop_at_signals()
    app = make_app(config, Codec(Registry(config, _REGISTRY_SECONDS_MAX)), group, source)
    site = web.AppRunner(make_site(app), access_log=None, shutdown_timeout=1.0)
    await site.setup()
    await web.SockSite(site, listener).start()
    log.info("analytics starts, and shows itself at http://%s:%s", *listener.getsockname()[:2])
    try:
        await _until_the_end(config, app, stop)
    finally:
        _end_for_sure(0 if stop.is_set() else StackError.exit_code)
        await _stop(app)
        await site.cleanup()


def _stop_at_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    asked = False

    def obey(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, obey)
    return stop


async def _until_the_end(config: Settings, app: App, stop: asyncio.Event) -> None:
    """Start the app and wait for a signal, or for the app to fail. Raises what it failed with."""
    starting = asyncio.ensure_future(_start(app))
    asked, crashed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(app.wait())
    ends: list[asyncio.Future[Any]] = [starting, asked, crashed, app.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        return
    error = app.failed.exception() if app.failed.done() else app.crash_reason
    try:
        raise error or (starting.exception() if starting.done() else None) or StackError("Faust stopped by itself")
    except (KafkaError, ProducerSendError, OSError) as reason:
        raise Unavailable(f"Kafka at {config.bootstrap_servers} cannot be used: {reason}") from reason


async def _start(app: App) -> None:
    """Ends only with a failure to start."""
    await app.start()
    log.info("analytics has read its table and follows the log")
    await asyncio.Event().wait()


async def _stop(app: App) -> None:
    try:
        await asyncio.wait_for(app.stop(), STOP_SECONDS_MAX)
    except TimeoutError:
        log.warning("Faust does not stop within %.0f s; what it had not written is read again", STOP_SECONDS_MAX)
    log.info("analytics ends")


def _end_for_sure(exit_code: int) -> None:
    """Faust's threads are not daemons: one that hangs would keep the process."""
    killer = Timer(STOP_SECONDS_MAX + _KILL_SECONDS, os._exit, [exit_code])
    killer.daemon = True
    killer.start()
