"""`streams api`: serve the HTTP API until SIGTERM or Ctrl-C. Calls `streams.api.app` under uvicorn.

It starts also when Postgres or the registry is down: writes are then answered 503 until both are there. Beside it, one
process at a time records the readers' lag (`streams.ops.lag_recorder`), probes the servers (`streams.ops.probes`) and
restarts the connector when it has failed (`streams.ops.relay_care`).
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
from typing import Annotated

import typer

# What is being answered when the end is asked for is answered within this; a save takes at most 4 s.
_DRAIN_SECONDS_MAX = 8


def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default STREAMS_API_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; default STREAMS_API_PORT.", min=1, max=65535)] = None,
) -> None:
    """Serve the HTTP API: POST /documents, GET /jobs/{id}, and the rest; /docs describes it."""
    import uvicorn

    from streams import logs
    from streams.api.app import create_app
    from streams.cli._listen import listen
    from streams.config import settings
    from streams.ops.lag_recorder import recording
    from streams.ops.probes import probing
    from streams.ops.relay_care import caring

    config = settings()
    logs.configure(for_people=sys.stderr.isatty())
    with listen("the API", host or config.api_host, port or config.api_port, backlog=2048) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(config),
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_SECONDS_MAX,
            )
        )
        print("The API listens at http://{}:{}".format(*listener.getsockname()[:2]), flush=True)
        # The pool tells of every connection that it loses; the callers are told by a 503, once.
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
        # What is loaded by now stays: without it, the garbage collector has little to walk while requests wait.
        gc.freeze()
        # uvicorn drains, and then raises the signal again for us: the end that was asked for is no failure.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with recording(config), probing(config), caring(config):
            server.run(sockets=[listener])
