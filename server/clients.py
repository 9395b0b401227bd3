"""Who calls: the name that history shows beside a commit.

A client says who it is, once in ``initialize`` or, since 2026-07-28, with each request; over HTTP a token may say it
too. Nothing is decided by a client's own word; it is only written down.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from memory_core.storage.author import authored

_PART_CHARS = 60


async def author_by_client(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Server middleware under which commits are recorded as the client's."""
    with authored(caller_name(ctx)):
        return await call_next(ctx)


def caller_name(ctx: ServerRequestContext[Any, Any]) -> str:
    """The client's name and version, e.g. ``claude-code 2.1``; after a token's label, ``laptop (claude-code 2.1)``.

    Empty where nobody said. The text is the client's own: ``authored`` cleans it.
    """
    from server.http.access import identity  # on HTTP only something is to be found there

    params = ctx.session.client_params
    info = params.client_info if params is not None else None
    client = f"{info.name[:_PART_CHARS]} {info.version[:_PART_CHARS]}".strip() if info is not None else ""
    bearer = identity()
    if bearer is None:
        return client
    return f"{bearer.label} ({client})" if client else bearer.label
