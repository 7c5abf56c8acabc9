"""A socket to serve on, or one clear sentence. Called by the verbs that serve HTTP."""

from __future__ import annotations

import os
import socket

from streams.errors import StackError


def listen(what: str, host: str, port: int, backlog: int = 128) -> socket.socket:
    """The socket that `what` serves on. Raises StackError if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise StackError(f"{what} cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from error
