"""Private mode: a stretch of a conversation of which nothing is kept, switched on and off from inside it.

The wish belongs to a connection: the one client of a stdio server, or one session over HTTP. Since 2026-07-28 nothing
tells one HTTP client's requests from another's, so there the switch is refused, and the setting ``private_mode`` is
the way. Travels in a context variable from the request to the store's view that answers it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context

from memory_core.errors import InvalidInput
from memory_core.model.changes import CommitReceipt, Status
from server.workspace import connection_state, is_modern

_STATE = "runebook.private_mode"
_ON = (
    "private mode is on: nothing is stored or counted until commit_memory(private_mode=false); memories can still be "
    "found and read"
)
_OFF = "private mode is off: what was said meanwhile was not kept"

_wished: ContextVar[bool] = ContextVar("private_mode", default=False)


def wished() -> bool:
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

    @property
    def of_the_one_client(self) -> bool:
        """Whether the only client wants nothing kept."""
        return self._all

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
            connection_state(ctx)[_STATE] = on
        return CommitReceipt("", Status.UNCHANGED, notes=(_ON if on else _OFF,))

    async def observed(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware: what runs below knows what the client wished."""
        known = self._all or (not self._one_client and not is_modern(ctx) and connection_state(ctx).get(_STATE, False))
        token = _wished.set(known)
        try:
            return await call_next(ctx)
        finally:
            _wished.reset(token)
