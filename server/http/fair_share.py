"""Each client's share of an HTTP server: its requests run by turns, and so many of its answers may be unread.

Nothing is begun for a client while many of its requests wait, run, or have answers that it has not read yet: it is told
to read first. What a client answers to questions of this server passes at once, for requests wait for it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from server.foreign_json import json_object
from server.http.authentication import bearer_id, respond
from server.http.connections import connection_of, peeked
from server.protocol.turns import Answers, Share, TurnHolder, Turns, take_one, through

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MCP, _SSE, _MESSAGES, _CHANGES = "/mcp", "/sse", "/messages/", "/api/memory/changes"
EVENT_STREAM = "text/event-stream"
_ROOM_SECONDS = 10.0
#: An answer of a client that is longer waits like a request: it would have to be held to be known.
_PEEKED_BYTES = 65_536
_SESSION = re.compile(rb"session_id=([0-9a-f]{32})")
_ANSWER = re.compile(rb"data: \{\"jsonrpc\":\"2\.0\",\"id\":(?:\d+|\"(?:[^\"\\]|\\.)*\"|null),\"(?:result|error)\"")
_EVENT_HEAD_BYTES = 1_024
_FULL = "Too much is open: read the answers to earlier requests first."


class FairShare:
    """ASGI middleware; see this module. It stands behind what knows who asks.

    Args:
        app: What is behind it.
        at_once: Requests that run at once.
        each: Of one bearer of a token; the owner may have all.
    """

    def __init__(self, app: ASGIApp, at_once: int, each: int) -> None:
        self._app = app
        self._turns = Turns(at_once, each)
        self._shares: dict[str, Share] = {}
        self._requests = Counter[str]()
        self._streams: dict[str, tuple[str, Answers]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass in its turn, or refuse it."""
        if (scope["method"] == "GET" and scope["path"] == _MCP) or wants_stream(scope):
            await self._app(scope, receive, send)
            return
        client = bearer_id()
        share = self._shares.setdefault(client, Share(self._turns, client))
        self._requests[client] += 1
        try:
            if scope["path"] == _SSE:
                await self._stream(client, share, scope, receive, send)
            else:
                await self._request(client, share, scope, receive, send)
        finally:
            if take_one(self._requests, client):
                del self._shares[client]

    async def _stream(self, client: str, share: Share, scope: Scope, receive: Receive, send: Send) -> None:
        answers = Answers(share)
        names: list[str] = []

        async def sent(message: Message) -> None:
            body = message.get("body", b"")
            if not names and (named := _SESSION.search(body)) is not None:
                names.append(named[1].decode())
                self._streams[names[0]] = (client, answers)
            await send(message)  # returns when what was sent before is read
            if _ANSWER.search(body, 0, _EVENT_HEAD_BYTES) is not None:
                answers.read()

        try:
            await self._app(scope, receive, sent)
        finally:
            answers.close()
            for name in names:
                del self._streams[name]

    async def _request(self, client: str, share: Share, scope: Scope, receive: Receive, send: Send) -> None:
        if share.is_full:
            body, receive = await peeked(receive, _PEEKED_BYTES)
            if not (body is not None and _is_answer(body)) and not await share.room(_ROOM_SECONDS):
                await respond(send, 429, _FULL, [(b"retry-after", b"5")])
                return
        if scope["path"] == _MESSAGES:
            with through(self._answers_on_stream(client, scope)):
                await self._app(scope, receive, send)
            return
        answers = Answers(share)
        answers.made()  # from now on it counts
        try:
            await self._in_turn(answers, scope, receive, send)
            if (connection := connection_of(scope)) is not None:
                await connection.read()
        finally:
            answers.close()

    def _answers_on_stream(self, client: str, scope: Scope) -> Answers | None:
        """Of the stream that a message names; None where it is none of the client's: the transport refuses it."""
        named = _SESSION.search(scope["query_string"])
        owner, answers = self._streams.get(named[1].decode() if named is not None else "", ("", None))
        return answers if owner == client else None

    async def _in_turn(self, answers: Answers, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        held = TurnHolder()

        async def sent(message: Message) -> None:
            if connection is not None and connection.is_unread:
                held.give_back()
            await send(message)

        try:
            await held.take(answers.share)
            with through(answers, held):
                await self._app(scope, receive, sent)
        finally:
            held.end()


def wants_stream(scope: Scope) -> bool:
    """Whether a request opens a stream of changes: it takes no turn; ``change_stream`` bounds how many there are."""
    if scope["method"] != "GET" or scope["path"] != _CHANGES:
        return False
    accepted = Headers(scope=scope).get("accept", "")
    return EVENT_STREAM in accepted and "application/json" not in accepted


def _is_answer(body: bytes) -> bool:
    message = json_object(body)
    return message is not None and "method" not in message
