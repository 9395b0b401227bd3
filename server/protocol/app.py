"""The MCP server: tools, the resource template, prompts and instructions, on any transport.

Cold start matters: this module imports the SDK and the models of the tool arguments, nothing that opens a
store or loads a model. Those follow right after ``initialize`` was answered.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, NotificationParams
from pydantic import Field

from memory_core.core.caller import authored
from memory_core.core.errors import InvalidInput, NotFound, RunebookError
from memory_core.core.feature import Features
from memory_core.core.memory.requests import ReadRequest, RetrieveRequest
from memory_core.features import FEATURES
from memory_core.version import program_version
from server.http.authentication import identity
from server.protocol.session import MemorySession, ServedStore
from server.protocol.stdio_transport import prompt_faults, scrub_results
from server.protocol.tools import build_tools
from server.protocol.turns import in_turn
from server.protocol.views import add_views, views_where_shown

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from memory_core.runebook import Runebook


_PART_CHARS = 60


async def author_by_client(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Server middleware under which commits are recorded as the client's."""
    with authored(caller_name(ctx)):
        return await call_next(ctx)


def caller_name(ctx: ServerRequestContext[Any, Any]) -> str:
    """The client's name and version, e.g. ``claude-code 2.1``; after a token's label, ``laptop (claude-code 2.1)``.

    Empty where nobody said. The text is the client's own: ``authored`` cleans it.
    """
    params = ctx.session.client_params
    info = params.client_info if params is not None else None
    client = f"{info.name[:_PART_CHARS]} {info.version[:_PART_CHARS]}".strip() if info is not None else ""
    bearer = identity()
    if bearer is None:
        return client
    return f"{bearer.label} ({client})" if client else bearer.label


NAME = "runebook"

#: What a client puts before its model.
INSTRUCTIONS = Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8").rstrip()


def build_server(
    store: ServedStore | Callable[[], Runebook],
    folder: Path | None = None,
    *,
    private: bool = False,
    features: Features = FEATURES,
) -> MCPServer[MemorySession]:
    """The server.

    Args:
        store: The store, where other servers of this process share it; or what opens it when it is first needed.
        folder: Where its only client works; None where there may be several.
        private: Whether that client had switched private mode on before.
        features: Of the store.
    """
    session = MemorySession(store, folder, features)
    if private:
        session.private_mode.begin()

    @asynccontextmanager
    async def lifespan(_server: MCPServer[MemorySession]) -> AsyncIterator[MemorySession]:
        await anyio.to_thread.run_sync(session.acquire)  # the store's lock is held as long as the store opens
        try:
            yield session
        finally:
            await anyio.to_thread.run_sync(session.release)

    async def warm_after_answer(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        answer = await call_next(ctx)
        session.store.warm()
        return answer

    server = MCPServer(
        NAME,
        title="Runebook",
        description="Long-term memory in Markdown files you own.",
        instructions=INSTRUCTIONS,
        version=program_version(),
        tools=list(build_tools(session)),
        lifespan=lifespan,
        log_level="WARNING",
        subscriptions=False,  # nothing here publishes a change, and the SDK announces them by default
        middleware=[
            scrub_results,
            prompt_faults,
            views_where_shown,
            warm_after_answer,
            session.private_mode.observed,
            author_by_client,
            in_turn,
            partial(with_memories, session),
        ],
    )
    _add_resource(server, session)
    add_views(server)
    _add_prompts(server, session)
    _add_metrics(server, session)

    server._lowlevel_server.add_notification_handler(  # MCPServer has no way to it
        "notifications/roots/list_changed", NotificationParams, session.workspace.forget
    )
    return server


#: Longer than the longest memory with its trailer.
_RESOURCE_CHARS = 294_912
_OVERVIEWS_OFFERED = 12
_MEMORIES_OFFERED = 12
_OFFERED_CHARS = 80
#: ``priority: high``.
_IMPORTANT = 0.8


async def with_memories(
    session: MemorySession, ctx: ServerRequestContext[Any, Any], call_next: CallNext
) -> HandlerResult:
    """Server middleware that adds to ``resources/list`` what a person may want to attach: see ``offered``."""
    answer = await call_next(ctx)
    if ctx.method != "resources/list" or not isinstance(answer, dict):
        return answer
    try:
        more = await anyio.to_thread.run_sync(lambda: offered(session.memory()))
    except RunebookError as error:
        logging.getLogger(__name__).warning("the memories could not be listed: %s", error)
        return answer
    return {**answer, "resources": [*answer["resources"], *more]}


def offered(memory: Runebook) -> list[dict[str, Any]]:
    """What a person may want to attach, a page of at most 38: nothing that is private to a project.

    The profile, the rolling summary, the overviews of directories, the most important memories, and those used most.
    """
    from memory_core.core.memory.names import first_words
    from memory_core.core.memory.uri import OVERVIEW_NAME, MemoryUri, profile_of
    from memory_core.core.search.memory_list import EntryFilter
    from memory_core.features.rolling_summary import rolling_summary_uri

    config, counts = memory.config, memory.store.ledger.directories.counts
    spaces = (MemoryUri(("user", config.user_space)), MemoryUri(("agent", config.agent_space)))
    directories = {place: count for space in spaces for place, count in counts(space).items()}
    profile = profile_of(config.user_space)
    found = {profile: "Profile: who the user is"} if memory.browser.text(MemoryUri.parse(profile)) else {}
    summary = rolling_summary_uri(config.user_space)
    found |= {str(summary): "Summary: who the user is and what goes on"} if memory.browser.text(summary) else {}
    for place, count in list(directories.items())[:_OVERVIEWS_OFFERED]:
        found[f"{place}/{OVERVIEW_NAME}"] = f"Overview of {place.rpartition('/')[2]} ({count})"
    important = EntryFilter(importance_min=_IMPORTANT, active=True, sort="importance", limit=_MEMORIES_OFFERED)
    shown = [(entry.uri, entry.abstract) for entry in memory.entries(important).entries if not entry.private]
    used = memory.recalls.hot(_MEMORIES_OFFERED, memory.projects.scope(None, None))
    for uri, abstract in (*shown, *((each.uri, each.abstract) for each in used)):
        name = MemoryUri.parse(uri).name.removesuffix(".md")
        found.setdefault(uri, first_words(abstract, _OFFERED_CHARS) or name)
    return [
        {"uri": uri, "name": MemoryUri.parse(uri).name, "title": title, "mimeType": "text/markdown"}
        for uri, title in found.items()
    ]


def _add_resource(server: MCPServer[MemorySession], session: MemorySession) -> None:
    @server.resource(
        "viking://{+path}",
        name="memory",
        description="A memory file, whole, by its URI as find, ls and tree print it.",
        mime_type="text/markdown",
    )
    def memory_file(path: str) -> str:
        try:
            return _whole(session.memory(), f"viking://{path}")
        except (NotFound, InvalidInput) as error:
            raise ResourceNotFoundError(str(error)) from error
        except RunebookError as error:
            raise ResourceError(str(error)) from error


def _whole(memory: Runebook, uri: str) -> str:
    """A file as its address names it, which clients may send with characters percent-encoded.

    A memory is whole; a conversation of more than ``_RESOURCE_CHARS`` says how to go on.
    """
    from urllib.parse import unquote

    try:
        page = memory.read(ReadRequest(uri, limit_chars=_RESOURCE_CHARS))
    except NotFound:
        if (plain := unquote(uri)) == uri:
            raise
        page = memory.read(ReadRequest(plain, limit_chars=_RESOURCE_CHARS))
    if page.next_offset is None:
        return page.content
    more = page.total_lines - page.next_offset
    return f"{page.content}\n[{more} more lines: call the tool read with offset={page.next_offset}]\n"


def _add_metrics(server: MCPServer[MemorySession], session: MemorySession) -> None:
    """``GET /metrics`` for Prometheus, over HTTP only; what lets a request in stands before all routes.

    A bearer of a token sees the figures of its own spaces; who needs no token is the owner, and sees all of the folder.
    """

    async def metrics(_request: Request) -> Response:
        from starlette.responses import PlainTextResponse, Response

        from memory_core.features.metrics import CONTENT_TYPE, STATS, StatsRequest, exposition

        def text() -> str:
            return exposition(session.memory().run(STATS, StatsRequest(whole=identity() is None, wait=False)))

        try:
            return Response(await anyio.to_thread.run_sync(text), headers={"content-type": CONTENT_TYPE})
        except RunebookError as error:
            logging.getLogger(__name__).warning("the metrics could not be taken: %s", error)
            return PlainTextResponse("The metrics cannot be taken now.", 503)

    server.custom_route("/metrics", methods=["GET"])(metrics)


def _add_prompts(server: MCPServer[MemorySession], session: MemorySession) -> None:
    @server.prompt(name="recall", description="Put what is remembered about a subject into the conversation.")
    def recall(ctx: Context[Any, Any], query: Annotated[str, Field(description="The subject or question.")]) -> str:
        with _answered():
            memory = session.memory()
            here = session.workspace.known(ctx, memory.config.project)
            return (
                memory.retrieve(RetrieveRequest(query, here=here)).text or f"Nothing is stored yet that fits: {query}"
            )

    @server.prompt(
        name="extract_memories",
        description="Brief the model to turn a conversation into memories and hand them in: the stored one that "
        "waits longest, or the present one.",
    )
    def extract_memories(
        ctx: Context[Any, Any],
        session_id: Annotated[str | None, Field(description="A stored conversation that waits.")] = None,
        focus: Annotated[str | None, Field(description="What to look for in the present conversation.")] = None,
    ) -> str:
        with _answered():
            memory = session.memory()
            here = memory.projects.current(session.workspace.known(ctx, memory.config.project))
            return memory.extractor.brief(session_id or None, focus or None, here, noted=memory.access.leaves_traces)


@contextmanager
def _answered() -> Iterator[None]:
    """Our own errors as protocol errors; the SDK would keep their text from the client."""
    try:
        yield
    except RunebookError as error:
        code = INVALID_PARAMS if isinstance(error, InvalidInput | NotFound) else INTERNAL_ERROR
        raise MCPError(code, str(error)) from error
