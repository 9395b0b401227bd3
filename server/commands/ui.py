"""``runebook ui``: the page in a browser, on this machine, for its owner alone.

Other programs and users of this machine can reach a loopback port too; so the server of the page always asks for a
key, which it makes at its start, hands to the browser in the address's fragment (which no browser sends), and forgets
at its end.
"""

from __future__ import annotations

import argparse
import gc
import secrets
import socket
import sys
import threading
import webbrowser
from typing import TYPE_CHECKING

from server.commands.opening import Commands, settings_of

if TYPE_CHECKING:
    from memory_core.runebook import Runebook


_HOST = "127.0.0.1"
_PORT = 8_849
#: Without a wish, the first free one of so many ports from the usual one on; then any.
_TRIED = 10
_KEY_BYTES = 24


def register(commands: Commands) -> None:
    """Declare ``ui``."""
    command = commands.add(
        "ui",
        "Open the memories in a browser: find, read, edit, compare, undo.",
        ui,
        json_output=False,
    )
    command.set_defaults(author="")  # the page and clients say who they are
    command.add_argument("--port", type=int, help=f"default {_PORT}, or a free one; 0 takes any that is free")
    command.add_argument("--no-open", action="store_true", help="print the address; open no browser")


def ui(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    import server.api.application  # noqa: F401 - the page asks it at once
    from server.commands.tokens import open_tokens
    from server.http.http_server import serve
    from server.protocol.app import build_server
    from server.protocol.session import ServedStore

    config = settings_of(arguments)

    def opener() -> Runebook:
        from memory_core.runebook import open_memory

        return open_memory(config)

    gc.enable()
    key = secrets.token_urlsafe(_KEY_BYTES)
    port = _free_port() if arguments.port is None else arguments.port

    def ready(bound: int) -> None:
        address = f"http://{_HOST}:{bound}/#key={key}"
        print(f"runebook: {address}", flush=True)
        print("runebook: this address opens your memories; keep it to yourself. Ctrl-C ends it.", file=sys.stderr)
        if not arguments.no_open:
            threading.Thread(target=webbrowser.open, args=(address,), name="runebook-browser", daemon=True).start()

    store = ServedStore(opener)
    with open_tokens(config) as tokens:
        serve(build_server(store), _HOST, port, tokens, config.http, store=store, owner_key=key, ready=ready)
    return 0


def _free_port() -> int:
    """The usual port or one of the next, if one of them is free; else 0."""
    for port in range(_PORT, _PORT + _TRIED):
        try:
            with socket.create_server((_HOST, port)):
                return port
        except OSError:
            continue
    return 0
