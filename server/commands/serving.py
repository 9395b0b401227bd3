"""Serving clients, alone or shared, and people: the page in a browser, and what a newcomer is shown.

Other programs and users of this machine can reach a loopback port too; so the server of ``ui`` always asks for a key,
which it makes at its start, hands to the browser in the address's fragment (which no browser sends), and forgets at its
end. All users of a machine can read the command lines of its programs; so the browser is given a file that only the
owner can read, which leads to the address.
"""

from __future__ import annotations

import argparse
import gc
import logging
import secrets
import socket
import sys
import threading
import time
import webbrowser
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.core.private_times import end_orphans
from server.commands.opening import settings_file_of, settings_of
from server.early_settings import read_early, working_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_core.core.config import Config, HttpConfig
    from memory_core.core.errors import StorageFailed
    from memory_core.core.store.issued_tokens import IssuedTokens
    from memory_core.runebook import Runebook
    from server.local.shared_server import Place
    from server.protocol.session import ServedStore
    from server.protocol.stdio_pipes import LinePipe


_PAGE_HOST = "127.0.0.1"
_PAGE_PORT = 8_849
#: Without a wish, the first free one of so many ports from the usual one on; then any.
_TRIED = 10
_KEY_BYTES = 24
#: How long a server that starts waits for its database, and between two looks.
_DATABASE_SECONDS = 60.0
_ATTEMPT_SECONDS = 0.5
#: For a person who starts what a client should.
_BY_HAND = (
    "runebook: waiting for an MCP client on standard input; Ctrl-C ends it. By hand you may want: runebook ui (your "
    "memories in a browser), runebook serve --transport http, or runebook install HOST (the host starts this itself)."
)
_LEADING_NAME = "page.html"
_LEADING = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">\n'


def serve(arguments: argparse.Namespace) -> int:
    """Serve MCP clients until they leave."""
    if arguments.shared and arguments.transport != "stdio":
        from memory_core.core.errors import InvalidInput

        raise InvalidInput("--shared goes with --transport stdio.", hint="Leave one of them out.")
    end_orphans(read_early(arguments.home, arguments.config, arguments.set).state)
    if arguments.transport == "stdio" and sys.stdin is not None and sys.stdin.isatty():
        print(_BY_HAND, file=sys.stderr, flush=True)
    ways = {"stdio": _serve_stdio, "local": _serve_local}
    return (_serve_shared if arguments.shared else ways.get(arguments.transport, _serve_http))(arguments)


def _serve_stdio(arguments: argparse.Namespace) -> int:
    from server.protocol.stdio_pipes import standard_pipes

    config = settings_of(arguments)
    return _serve_here(arguments, config, standard_pipes())  # taken before any import that might print


def _serve_here(arguments: argparse.Namespace, config: Config, pipe: LinePipe, private: bool = False) -> int:
    """Serve the one client of this process, which may have private mode on already."""
    import anyio

    from server.protocol.app import build_server
    from server.protocol.stdio_transport import serve_pipe

    def begin_listening(store: ServedStore) -> Callable[[], None]:
        from server.local.channel_requests import listen

        place = _place(arguments)
        return listen(store, place.state, kind="stdio", settings=place.settings)

    folder = working_directory()
    server = build_server(_store(arguments, config, begin_listening), Path(folder) if folder else None, private=private)
    gc.enable()
    gc.freeze()
    return anyio.run(serve_pipe, server, pipe)


def _serve_shared(arguments: argparse.Namespace) -> int:
    """Pass on what a host says to the server that all hosts share."""
    from server.local.stdio_bridge import Bridge
    from server.protocol.stdio_pipes import standard_pipes

    gc.enable()
    return Bridge(
        standard_pipes(),
        lambda: _place(arguments),
        lambda *served: _serve_here(arguments, settings_of(arguments), *served),
    ).run()


def _serve_local(arguments: argparse.Namespace) -> int:
    """Be the server that hosts share, in the background, until none needs it."""
    from server.local.shared_server import keep_log_bounded, serve_until_idle, the_only_one

    place = _place(arguments)
    try:
        lock = the_only_one(place)
    except OSError as error:
        raise _unreachable(error) from error
    if lock is None:
        return 0
    for written in logging.getLogger().handlers:
        written.addFilter(keep_log_bounded)
    config = settings_of(arguments)
    gc.enable()
    store = _store(arguments, config)
    try:
        return serve_until_idle(store, place, config.sharing.idle_minutes * 60)
    except OSError as error:
        raise _unreachable(error) from error


def _unreachable(error: OSError) -> StorageFailed:
    from memory_core.core.errors import StorageFailed

    return StorageFailed(
        f"other programs of this machine could not reach a server: {error.strerror or error}.",
        hint="Check free space and the permissions of the .state folder, or serve without --shared.",
    )


def _serve_http(arguments: argparse.Namespace) -> int:
    from memory_core.core.store.issued_tokens import spaces_in_use
    from server.http.http_server import serve
    from server.local.channel_requests import listen
    from server.local.shared_server import HTTP, Attachments
    from server.protocol.app import build_server

    config = settings_of(arguments)
    gc.enable()
    named = (*config.http.allowed_hosts, *arguments.allowed_host)
    limits = config.http.model_copy(update={"allowed_hosts": named})
    store, place = _store(arguments, config), _place(arguments)
    attachments = Attachments(store, place)
    with ExitStack() as ending:
        tokens = ending.enter_context(_tokens(config))
        ending.callback(listen(store, place.state, kind=HTTP, settings=place.settings, attachments=attachments))
        ending.callback(attachments.close)
        guarded = _who_may_come(config.http, tokens)
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host

        def ready(port: int) -> None:
            origin = f"http://{host}:{port}"
            print(
                f"runebook: {origin}/mcp (streamable HTTP) and /sse, {guarded}; in a browser {origin}/. "
                "Ctrl-C ends it.",
                file=sys.stderr,
                flush=True,
            )

        used, served = spaces_in_use(config), build_server(store)
        serve(served, arguments.host, arguments.port, tokens, limits, store=store, spaces=used, ready=ready)
    return 0


def _who_may_come(http: HttpConfig, tokens: IssuedTokens) -> str:
    """Who the door is open to, in a few words for standard error."""
    from server.http.local_peer import can_tell_users

    if http.oauth.issuer or http.require_token or tokens.any_unrevoked():
        return "with a token"
    if http.without_token == "anyone":
        return "WITHOUT A TOKEN FOR EVERY USER OF THIS MACHINE (http.without_token)"
    if can_tell_users():
        return "for programs of this user, without a token"
    return "with a token, as this system does not tell whose a connection is (runebook token add LABEL)"


@contextmanager
def _tokens(config: Config) -> Iterator[IssuedTokens]:
    """The token table. A database that is away, as one that restarts, is waited for."""
    from memory_core.core.errors import StoreBusy
    from server.commands.access_tokens import open_tokens

    until = time.monotonic() + (_DATABASE_SECONDS if config.store.url else 0.0)
    told = False
    with ExitStack() as opened:
        while True:
            try:
                tokens = opened.enter_context(open_tokens(config))
            except StoreBusy as error:
                if time.monotonic() >= until:
                    raise
                if not told:
                    print(f"runebook: {error.message} It is waited for.", file=sys.stderr, flush=True)
                told = True
                time.sleep(_ATTEMPT_SECONDS)
            else:
                break
        yield tokens


def _store(
    arguments: argparse.Namespace,
    config: Config,
    begin_listening: Callable[[ServedStore], Callable[[], None]] | None = None,
) -> ServedStore:
    from server.protocol.session import ServedStore

    def opener() -> Runebook:
        from memory_core.core.caches import give_back_long_blocks
        from memory_core.runebook import open_memory

        give_back_long_blocks()
        return open_memory(config)

    return ServedStore(opener, begin_listening, partial(settings_file_of, arguments))


def _place(arguments: argparse.Namespace) -> Place:
    from server.local.shared_server import place_of

    return place_of(arguments.home, arguments.config, arguments.set)


def stop(arguments: argparse.Namespace) -> int:
    """End the background server of the store."""
    from server.local.shared_server import stop_shared

    stopped = stop_shared(_place(arguments).state)
    for pid, attached in stopped:
        left = f"; {attached} attached: the next message of each starts another" if attached else ""
        print(f"The background server (process {pid}) ends{left}.")
    if not stopped:
        print("No background server runs on this store.")
    return 0


def usage(_arguments: argparse.Namespace) -> int:
    """Print the usage text for a model."""
    print(Path(__file__).with_name("usage.txt").read_text(encoding="utf-8"), end="")
    return 0


def demo(arguments: argparse.Namespace) -> int:
    """Show Runebook at work."""
    from server.demo import run

    config = [f"--config={arguments.config}"] if arguments.config else []
    options = [*config, *(f"--set={setting}" for setting in arguments.set)]
    home = settings_of(arguments).root if arguments.home else None
    return run(keep=arguments.keep, home=home, options=options)


def ui(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    import server.http.api  # noqa: F401 - the page asks it at once
    from memory_core.core.store import atomic
    from memory_core.core.store.files import STATE_NAME
    from server.commands.access_tokens import open_tokens
    from server.http.http_server import serve
    from server.protocol.app import build_server

    config = settings_of(arguments)
    gc.enable()
    key = secrets.token_urlsafe(_KEY_BYTES)
    port = _free_port() if arguments.port is None else arguments.port

    def ready(bound: int) -> None:
        address = f"http://{_PAGE_HOST}:{bound}/#key={key}"
        print(f"runebook: {address}", flush=True)
        print("runebook: this address opens your memories; keep it to yourself. Ctrl-C ends it.", file=sys.stderr)
        if not arguments.no_open:
            atomic.replace(leading, _LEADING.format(address=address))
            threading.Thread(
                target=webbrowser.open, args=(leading.as_uri(),), name="runebook-browser", daemon=True
            ).start()

    store = _store(arguments, config)
    leading = config.root / STATE_NAME / _LEADING_NAME
    with open_tokens(config) as tokens:
        try:
            serve(build_server(store), _PAGE_HOST, port, tokens, config.http, store=store, owner_key=key, ready=ready)
        finally:
            atomic.remove(leading)  # what a killed server leaves leads nowhere: its key is gone with it
    return 0


def _free_port() -> int:
    """The usual port or one of the next, if one of them is free; else 0."""
    for port in range(_PAGE_PORT, _PAGE_PORT + _TRIED):
        try:
            with socket.create_server((_PAGE_HOST, port)):
                return port
        except OSError:
            continue
    return 0
