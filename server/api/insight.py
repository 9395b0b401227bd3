"""What the store knows about itself: how things are done, which query found what, figures, and its health."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request

from memory_core.core.errors import RunebookError
from memory_core.core.search.memory_list import LIMIT_MOST, EntryFilter, EntrySummary
from memory_core.features.doctor import DOCTOR, DoctorRequest
from memory_core.features.metrics import STATS, StatsRequest
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import Runebook
from server.api import past_answers
from server.api.caller import Reader
from server.api.entry import field_facts, stored
from server.api.refusals import Refusal, declared
from server.http.authentication import identity

routes = APIRouter(tags=["insight"])
_NUMBERS = frozenset({"int64", "float32"})


@routes.get(
    "/procedural", response_model=past_answers.ProceduralAnswer, responses=declared(), response_model_exclude_none=True
)
def procedural(memory: Reader, limit: Annotated[int, Query(ge=1, le=LIMIT_MOST)] = 100) -> Any:
    """How things are done: patterns, what is known of tools and skills with their figures, and solved cases."""

    def listed(memory_type: str) -> tuple[EntrySummary, ...]:
        return memory.entries(EntryFilter(memory_type=memory_type, limit=limit)).entries

    return {
        "patterns": [entry.as_dict() for entry in listed("patterns")],
        "tools": [{**entry.as_dict(), "figures": _figures(memory, entry)} for entry in listed("tools")],
        "skills": [{**entry.as_dict(), "figures": _figures(memory, entry)} for entry in listed("skills")],
        "cases": [entry.as_dict() for entry in listed("cases")],
    }


@routes.get(
    "/trail", response_model=past_answers.TrailAnswer, responses=declared(404), response_model_exclude_none=True
)
def trail(
    memory: Reader,
    uri: Annotated[str | None, Query(max_length=4_096, description="Only what returned it.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
) -> Any:
    """Which query retrieved what, newest first."""
    return {"trail": [recall.as_dict() for recall in memory.run(TRAIL, TrailRequest(limit, uri))]}


@routes.get("/stats", response_model=past_answers.StatsAnswer, responses=declared())
def stats(memory: Reader) -> Any:
    """Figures of the store: the caller's part of it, or for the owner all of it."""
    return memory.run(STATS, StatsRequest(whole=identity() is None, wait=False)).as_dict()


@routes.get("/health", response_model=past_answers.HealthAnswer, responses=declared(), response_model_exclude_none=True)
async def health(memory: Reader, request: Request) -> Any:
    """An examination of the whole store from all sides; takes a second or more. For the owner."""
    if identity() is not None:
        raise Refusal(
            403, "the store is examined for its owner only.", "Ask the owner: runebook doctor, or runebook ui."
        )
    # One at a time, whoever asks meanwhile gets the same answer: else a few reloads would take every thread.
    state = request.app.state
    running: asyncio.Task[dict[str, Any]] | None = getattr(state, "examination", None)
    if running is None or running.done():
        running = state.examination = asyncio.create_task(_examined(memory))
        running.add_done_callback(_heard)
    return await asyncio.shield(running)


async def _examined(memory: Runebook) -> dict[str, Any]:
    return await anyio.to_thread.run_sync(lambda: memory.run(DOCTOR, DoctorRequest()).as_dict())


def _heard(examination: asyncio.Task[dict[str, Any]]) -> None:
    """Its error is for those who wait for it, if anybody still does."""
    if not examination.cancelled():
        examination.exception()


def _figures(memory: Runebook, entry: EntrySummary) -> dict[str, float | None]:
    try:
        found = stored(memory, entry.path)
    except RunebookError:  # it went this moment
        return {}
    if found.memory.type is None:
        return {}
    return {
        field["name"]: field["value"]
        for field in field_facts(found.memory.type, found.memory.fields)
        if field["type"] in _NUMBERS
    }
