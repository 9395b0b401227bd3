"""What is known of a client beside its calls: whether it wants nothing kept, and where it works.

It works in the project of its roots, else in that of the server's working directory.

Roots are asked for once a connection, and again when the client says that they changed. Up to 2025-11-25 the server
asks while a tool runs. Since 2026-07-28 the tool answers "input required" and is called again; over HTTP nothing then
tells one client from another, so nothing is remembered. A client that has no roots, or does not answer, is left alone.

Who comes with a token may be anybody, anywhere: the paths it names are not looked up on this machine, or it could ask
which folders there are, and what is worked on in them. It names its project.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.from_thread
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import InputRequiredResult, ListRootsRequest, ListRootsResult, Result, ServerRequest
from mcp.types.version import is_version_at_least
from pydantic import ValidationError

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.results import CommitReceipt, Status
from server.http.authentication import identity
from server.protocol.turns import while_asking

if TYPE_CHECKING:
    from memory_core.core.config import ProjectConfig


_PRIVATE_STATE = "runebook.private_mode"
_ON = (
    "private mode is on: nothing is stored or counted until commit_memory(private_mode=false); memories can still be "
    "found and read"
)
_OFF = "private mode is off: what was said meanwhile was not kept"

_wished: ContextVar[bool] = ContextVar("private_mode", default=False)


def is_private_wished() -> bool:
    """Whether the request that is being answered must leave nothing behind."""
    return _wished.get()


class PrivateMode:
    """Which connections want nothing kept.

    Args:
        one_client: Whether all requests come from one client, whatever their era.
    """

    def __init__(self, *, one_client: bool) -> None:
        self._one_client = one_client
        self._all = False

    def begin(self) -> None:
        """The only client had switched it on, on a connection that this one goes on from."""
        self._all = True

    def switch(self, ctx: Context[Any, Any], on: bool) -> CommitReceipt:
        """Begin or end private mode for the client behind a call.

        Raises:
            InvalidInput: If nothing tells this client from others.
        """
        if self._one_client:
            self._all = on
        elif is_modern(ctx):
            raise InvalidInput(
                "private mode cannot be switched here: over HTTP, this version of the protocol has no sessions.",
                hint="Nothing was switched. Do not call commit_memory meanwhile, or connect with a token that only "
                "reads; the owner can also start the server with --set private_mode=true.",
            )
        else:
            connection_state(ctx)[_PRIVATE_STATE] = on
        return CommitReceipt("", Status.UNCHANGED, notes=(_ON if on else _OFF,))

    async def observed(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware: what runs below knows what the client wished."""
        known = self._all or (
            not self._one_client and not is_modern(ctx) and connection_state(ctx).get(_PRIVATE_STATE, False)
        )
        token = _wished.set(known)
        try:
            return await call_next(ctx)
        finally:
            _wished.reset(token)


_ANSWER_SECONDS = 2.0
#: Nobody says when roots change in the modern era.
_REMEMBERED_SECONDS = 60.0
_UNANSWERED_LIMIT = 3
_INPUT_REQUIRED_SINCE = "2026-07-28"
_QUESTION = "roots"
_ROOTS_READ = 16
_PROJECT_STATE = "runebook.project"

AnyContext = Context[Any, Any]
Answer = TypeVar("Answer", bound=Result)


class Workspace:
    """Finds the projects of one server's clients; safe from any thread.

    Args:
        folder: The server's working directory when it started; None where clients may be anywhere.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._answered: tuple[float, str | None] | None = None
        self._unanswered = 0

    def here(
        self, ctx: AnyContext, settings: ProjectConfig, named: str | None = None
    ) -> str | InputRequiredResult | None:
        """The project in which the client behind this call works.

        Blocks for at most two seconds, once a connection.

        Args:
            ctx: The running call, in a worker thread.
            settings: Whether to look, and whether there is need to.
            named: The project that the call names; none needs to be found then.

        Returns:
            The project, None for none, or what the tool must return so that the client tells its roots.
        """
        if not settings.detect or settings.name.strip() or (named is not None and named.strip() != "."):
            return None
        if identity() is not None:
            return None
        if not _offers_roots(ctx):
            return self._around
        found = self._by_rounds(ctx) if is_modern(ctx) else self._within_the_call(ctx)
        return self._around if found is None else found

    def known(self, ctx: AnyContext, settings: ProjectConfig) -> str | None:
        """The project as far as it is known, without asking anybody."""
        if not settings.detect or settings.name.strip() or identity() is not None:
            return None
        found = None
        if _offers_roots(ctx):
            found = self._said if is_modern(ctx) else connection_state(ctx).get(_PROJECT_STATE)
        return found or self._around

    async def forget(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> None:
        """Ask again: the client says that its roots changed."""
        connection_state(ctx).pop(_PROJECT_STATE, None)

    @cached_property
    def _around(self) -> str | None:
        from memory_core.core.memory.project import project_at

        return None if self._folder is None else project_at(self._folder)

    def _within_the_call(self, ctx: AnyContext) -> str | None:
        state = connection_state(ctx)
        if _PROJECT_STATE not in state:
            if not ctx.session.can_send_request:
                return None
            try:
                answer = anyio.from_thread.run(ask, ctx, ListRootsRequest(), ListRootsResult, _ANSWER_SECONDS)
                state[_PROJECT_STATE] = _project_of(answer)
            except (MCPError, TimeoutError, ValidationError):
                state[_PROJECT_STATE] = None
        found: str | None = state[_PROJECT_STATE]
        return found

    def _by_rounds(self, ctx: AnyContext) -> str | InputRequiredResult | None:
        answer = (ctx.input_responses or {}).get(_QUESTION)
        if isinstance(answer, ListRootsResult):
            found = _project_of(answer)
            with self._lock:
                self._answered, self._unanswered = (time.monotonic(), found), 0
            return found
        if ctx.request_state:  # asked in vain, or a later round of something else
            return self._said
        if self._folder is not None:  # one client, on the other end of a pipe
            with self._lock:
                fresh = self._answered is not None and time.monotonic() - self._answered[0] < _REMEMBERED_SECONDS
                if fresh or self._unanswered >= _UNANSWERED_LIMIT:
                    return self._said
                self._unanswered += 1
        return InputRequiredResult(input_requests={_QUESTION: ListRootsRequest()}, request_state=_QUESTION)

    @property
    def _said(self) -> str | None:
        """What the only client answered; None where there may be several."""
        return None if self._folder is None or self._answered is None else self._answered[1]


def _offers_roots(ctx: AnyContext) -> bool:
    capabilities = ctx.client_capabilities
    return capabilities is not None and capabilities.roots is not None


def is_modern(ctx: AnyContext | ServerRequestContext[Any, Any]) -> bool:
    """Whether the call is of the era without a handshake."""
    version = ctx.protocol_version
    return version is not None and is_version_at_least(version, _INPUT_REQUIRED_SINCE)


def connection_state(ctx: AnyContext | ServerRequestContext[Any, Any]) -> dict[str, Any]:
    """What is kept for as long as the connection; the SDK has no public way to it from a call."""
    state: dict[str, Any] = ctx.session._connection.state
    return state


async def ask(ctx: AnyContext, question: ServerRequest, kind: type[Answer], timeout_seconds: float) -> Answer:
    """What the client behind a call answers to a question; up to protocol 2025-11-25.

    Raises:
        MCPError: If it refuses, or has left.
        TimeoutError: If it does not answer in time.
        ValidationError: If it answers something of another kind.
    """
    # Not the session's own methods: those are deprecated and warn. The related id puts the question on the stream of
    # the call, where HTTP clients listen.
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    async with while_asking():
        with anyio.fail_after(timeout_seconds):
            answer: Answer = await ctx.session.send_request(question, kind, metadata=metadata)
    return answer


def _project_of(answer: ListRootsResult) -> str | None:
    """The project of the first root that is part of one."""
    from memory_core.core.memory.project import project_at

    folders = _folders(str(root.uri) for root in answer.roots[:_ROOTS_READ])
    return next((found for folder in folders if (found := project_at(folder)) is not None), None)


def _folders(uris: Iterable[str]) -> Iterable[Path]:
    """Folders of this machine; a root of another host is not looked at."""
    from urllib.request import url2pathname

    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            yield Path(url2pathname(parts.path))
