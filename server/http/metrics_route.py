"""``GET /metrics``: the store's figures for Prometheus, behind the same door as everything else.

A bearer of a token sees the figures of its own spaces; who needs no token is the owner, and sees all of the folder.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.responses import PlainTextResponse, Response

from memory_core.core.errors import RunebookError
from memory_core.features.metrics import STATS, StatsRequest
from server.http.authentication import identity

if TYPE_CHECKING:
    from server.protocol.session import MemorySession


_logger = logging.getLogger(__name__)


async def metrics_response(session: MemorySession) -> Response:
    """The answer to one scrape."""

    def text() -> str:
        from memory_core.features.metrics import exposition

        return exposition(session.memory().run(STATS, StatsRequest(whole=identity() is None, wait=False)))

    from memory_core.features.metrics import CONTENT_TYPE

    try:
        body = await anyio.to_thread.run_sync(text)
    except RunebookError as error:
        _logger.warning("the metrics could not be taken: %s", error)
        return PlainTextResponse("The metrics cannot be taken now.", 503)
    return Response(body, headers={"content-type": CONTENT_TYPE})
