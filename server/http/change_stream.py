"""What was committed, as it happens: the route ``/changes``, as one answer or as a stream of server-sent events.

The ledger is asked for the number of its last commit; that is all while nothing happens, and it works on a folder as on
a database, whichever process commits. A stream holds no queue: it knows the last commit that it told of, so one that is
not read costs nothing, and several commits in a row are one event. It ends after ``STREAM_SECONDS``, and its reader
asks again from there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse

from memory_core.core.errors import RunebookError
from memory_core.features.review import waiting_count
from server.http.api import Reader, route
from server.http.authentication import bearer_id, respond
from server.http.fair_share import EVENT_STREAM, wants_stream
from server.http.memory_routes import past_of
from server.http.rate_limits import OpenRequests

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from memory_core.core.store.history_rows import PastCommit
    from memory_core.features.history import History
    from memory_core.runebook import Runebook
    from server.protocol.session import ServedStore

#: Streams that one bearer of a token, or the owner, may have open.
STREAMS_EACH = 8
#: How long a stream lasts at most, how often the ledger is asked, and after how long a line shows that it still runs.
STREAM_SECONDS, POLL_SECONDS, HEARTBEAT_SECONDS = 600.0, 0.5, 15.0
_SHOWN_COMMITS, _SHOWN_FILES = 20, 50
#: Shows that a stream still runs.
_COMMENT = ": \n\n"
_ABOUT = "Commits since the one named, at most 20; as `text/event-stream` whenever something is committed."

changes = APIRouter(tags=["past"])
Since = Annotated[str | None, Query(max_length=64, description="A commit's id; without it only the latest is named.")]
LastEvent = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=64,
        description="The id of the last event; browsers send it when they reconnect.",
    ),
]


@route(
    changes,
    "GET",
    "/changes",
    "ChangesAnswer",
    nulls=True,
    description=_ABOUT,
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}},
)
async def read_changes(memory: Reader, request: Request, since: Since = None, last_event: LastEvent = None) -> Any:
    """What was committed since, and how many proposals wait for their owner."""
    last_seen = last_event or since
    if not wants_stream(request.scope):
        return await anyio.to_thread.run_sync(_facts_since, memory, last_seen)
    state = request.app.state
    if not hasattr(state, "change_streams"):
        state.change_streams = OpenRequests(STREAMS_EACH)
    return _ChangeStream(_events(memory, last_seen, state.store), state.change_streams, bearer_id())


class _ChangeStream(StreamingResponse):
    """A stream that counts among those of its client while it runs."""

    def __init__(self, events: AsyncIterator[str], open_streams: OpenRequests, client: str) -> None:
        super().__init__(events, media_type=EVENT_STREAM)
        self._open_streams = open_streams
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._open_streams.one_more(self._client) as admitted:
            if admitted:
                await super().__call__(scope, receive, send)
            else:
                await respond(send, 429, "Too many streams of changes are open.", [(b"retry-after", b"30")])


async def _events(memory: Runebook, last_seen: str | None, store: ServedStore) -> AsyncIterator[str]:
    """An event at once, and one each time something was committed that the reader may see.

    The stream ends when the server opens the store anew, as after a restore or a change of settings.
    """
    position = StreamPosition(memory, last_seen)
    own = memory.home or memory  # a view of a shared space belongs to the view of its user

    def look() -> tuple[Mapping[str, Any] | None, bool]:
        if store.memory() is not own:
            return None, True
        return position.news(), False

    ends_at = time.monotonic() + STREAM_SECONDS
    heartbeat_at = 0.0
    while (now := time.monotonic()) < ends_at:
        try:
            facts, is_over = await anyio.to_thread.run_sync(look)
        except RunebookError:  # the store is busy: the next look returns it
            facts, is_over = None, False
        if is_over:
            return
        if facts is not None or now >= heartbeat_at:
            yield _COMMENT if facts is None else _event(facts)
            heartbeat_at = now + HEARTBEAT_SECONDS
        await asyncio.sleep(POLL_SECONDS)


def _event(facts: Mapping[str, Any]) -> str:
    name = "" if facts["latest"] is None else f"id: {facts['latest']}\n"
    return f"{name}event: changes\ndata: {json.dumps(facts, ensure_ascii=False)}\n\n"


@dataclass
class StreamPosition:
    """What one reader of the stream saw last.

    Attributes:
        memory: The store as the reader may see it.
        last_seen: The commit that the reader saw last; None where it saw none.
        seq: The ledger's newest number then; -1 before the first look.
    """

    memory: Runebook
    last_seen: str | None
    seq: int = -1

    def news(self) -> Mapping[str, Any] | None:
        """What is new, or None; the first call always returns the present state.

        Raises:
            RunebookError: If the store cannot answer; the next call then returns what this one would have.
        """
        seq = self.memory.store.ledger.newest_seq()
        if seq == self.seq:
            return None
        facts = _facts_since(self.memory, self.last_seen)
        first, self.seq = self.seq < 0, seq
        if not first and facts["latest"] == self.last_seen:
            return None
        self.last_seen = facts["latest"]
        return facts


def _facts_since(memory: Runebook, since: str | None) -> dict[str, Any]:
    past = past_of(memory)
    newest = past.newest(_SHOWN_COMMITS + 1)
    shown = newest[:_SHOWN_COMMITS]
    known = next((at for at, commit in enumerate(newest) if commit.commit_id == since), None)
    return {
        "latest": newest[0].commit_id if newest else None,
        "commits": [] if since is None else [_commit_facts(past, commit) for commit in shown[:known]],
        "more": since is not None and known is None and len(newest) > _SHOWN_COMMITS,
        "review": waiting_count(memory),
    }


def _commit_facts(past: History, commit: PastCommit) -> dict[str, Any]:
    return {
        "commit_id": commit.commit_id,
        "at": commit.at,
        "author": commit.author,
        "kind": commit.kind,
        "uris": past.files(commit)[:_SHOWN_FILES],
    }


ROUTERS = (changes,)
