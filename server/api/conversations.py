"""Stored conversations: which there are, what was said, what is hot, and what waits to become memories."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from memory_core.core.errors import NotFound, RunebookError
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.index.indexer import numbered
from memory_core.core.memory.message import Message, transcript_line
from memory_core.core.memory.metadata import read_moment
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.memory_list import EntryFilter
from memory_core.core.store.files import FileStat
from memory_core.features.tiers.stored import StoredSegment, all_segments, segments_in, warmth
from memory_core.runebook import Runebook
from server.api import past_answers
from server.api.caller import Reader, Writer
from server.api.questions import Consolidation
from server.api.refusals import declared

routes = APIRouter(tags=["conversations"])
_TEXT_CHARS = 40_000
_HOT_MEMORIES = 50
_HEAT_SEGMENTS = 500
_SHOWN_SEGMENTS = 200


@routes.get("/sessions", response_model=past_answers.SessionsAnswer, responses=declared())
def sessions(
    memory: Reader,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> Any:
    """Conversations, the latest first."""
    found = sorted(_logs(memory), key=lambda each: (-each[1].mtime_ns, each[0]))
    shown = [_session_facts(memory, log, stat) for log, stat in found[offset : offset + limit]]
    return {"sessions": shown, "total": len(found)}


@routes.get(
    "/sessions/{session_id}",
    response_model=past_answers.ConversationAnswer,
    responses=declared(404),
    response_model_exclude_none=True,
)
def conversation(
    memory: Reader,
    session_id: Annotated[str, Path(max_length=400, examples=["2026-05-08-1f3a9c2e"])],
    offset: Annotated[int, Query(ge=0, le=100_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Any:
    """What was said in a conversation, message by message, and what it was about."""
    log = memory.browser.visible(memory.commits.session_uri(session_id))
    text = memory.store.text(log)
    if text is None:
        raise NotFound(f"there is no conversation {session_id!r}.", hint="List them with GET /api/memory/sessions.")
    said = list(numbered(text))
    return {
        "session_id": session_id,
        "uri": str(log),
        "messages": [_message_facts(line, message) for line, message in said[offset : offset + limit]],
        "segments": [_segment_facts(each) for each in segments_in(memory.store, log).used],
        "total": len(said),
        "offset": offset,
    }


@routes.get("/heat", response_model=past_answers.HeatAnswer, responses=declared())
def heat(memory: Reader, limit: Annotated[int, Query(ge=1, le=_HEAT_SEGMENTS)] = _SHOWN_SEGMENTS) -> Any:
    """Which segments of conversations are hot, and which memories are used most, with what age leaves of them."""
    tiers, now = memory.config.tiers, datetime.now(UTC)
    memory.store.usage.flush()
    scope = memory.projects.scope(None, None)
    found = [
        each
        for each in all_segments(memory.store, memory.commits.sessions)
        if scope.sees(each.segment.project, private=each.segment.private)
    ]
    warm = sorted(zip(found, warmth(memory.store, tiers, found, now), strict=True), key=lambda pair: -pair[1].heat)
    segments = []
    for each, warmed in warm[:limit]:
        facts = _segment_facts(each)
        since = warmed.last_visit or read_moment(each.segment.created_at) or now
        segments.append(
            {name: facts[name] for name in ("uri", "session_id", "title", "summary", "keywords")}
            | {
                "visits": warmed.visits,
                "interactions": each.segment.interactions,
                "hours": max(0.0, (now - since).total_seconds() / 3_600.0),
                "heat": warmed.heat,
            }
        )
    rate = memory.config.search.decay_lambda
    return {
        "segments": segments,
        "threshold": tiers.mid_term_heat_threshold,
        "tau_hours": tiers.heat_tau_hours,
        "alpha": tiers.heat_alpha,
        "beta": tiers.heat_beta,
        "gamma": tiers.heat_gamma,
        "memories": _hot_memories(memory, rate, now),
        "lambda": rate,
    }


@routes.get("/queue", response_model=past_answers.QueueAnswer, responses=declared(), response_model_exclude_none=True)
def queue(memory: Reader) -> Any:
    """Conversations whose memories are still to be extracted, longest waiting first, with the reason."""
    waiting = []
    for row in memory.extractor.waiting():
        facts = row.as_dict()
        waiting.append({**facts, "messages": facts.pop("messages_waiting")})
    return {"waiting": waiting}


@routes.post(
    "/consolidate",
    response_model=past_answers.ConsolidationAnswer,
    responses=declared(404, 413, 415),
    response_model_exclude_none=True,
)
def consolidate(memory: Writer, asked: Consolidation | None = None) -> Any:
    """Extract what waits with the configured model; without one, or if it fails, everything waits on."""
    receipts = [receipt.as_dict() for receipt in memory.extract_waiting(asked.session_id if asked else None)]
    return {"receipts": receipts, "waiting": len(memory.extractor.waiting())}


def _logs(memory: Runebook) -> list[tuple[MemoryUri, FileStat]]:
    place, files = memory.commits.sessions, memory.store.files
    if not files.is_dir(place):
        return []
    logs = (entry.uri.child(MESSAGES_NAME) for entry in files.entries(place) if entry.is_dir)
    return [(log, stat) for log in logs if (stat := files.stat(log)) is not None]


def _session_facts(memory: Runebook, log: MemoryUri, stat: FileStat) -> dict[str, Any]:
    row = memory.extractor.queue.get(log)
    try:
        stored = row.stored if row is not None else len(memory.extractor.sessions.messages(log))
        segments = len(segments_in(memory.store, log).used)
    except RunebookError:  # a damaged log is listed all the same
        stored, segments = 0, 0
    return {
        "session_id": log.parent.name,
        "uri": str(log),
        "messages": stored,
        "waiting": 0 if row is None else row.waiting,
        "segments": segments,
        "updated_at": datetime.fromtimestamp(stat.mtime_ns / 1e9, UTC).isoformat(timespec="seconds"),
    }


def _message_facts(line: int, message: Message) -> dict[str, Any]:
    told = transcript_line(replace(message, time=None, name="-"), None).removeprefix("-: ")
    return {
        "line": line,
        "role": message.role,
        "speaker": message.name or message.role,
        "time": None if message.time is None else message.time.isoformat(),
        "text": told[:_TEXT_CHARS],
    }


def _segment_facts(each: StoredSegment) -> dict[str, Any]:
    segment = each.segment
    pages = [(page.first, page.last) for page in segment.pages]
    return {
        "uri": str(each.uri),
        "session_id": each.log.parent.name,
        "title": segment.title,
        "summary": segment.summary,
        "keywords": list(segment.keywords),
        "first_line": pages[0][0] if pages else None,
        "pages": pages,
    }


def _hot_memories(memory: Runebook, rate: float, now: datetime) -> list[dict[str, Any]]:
    page = memory.entries(EntryFilter(sort="accesses", limit=_HOT_MEMORIES), now)
    return [
        {
            "uri": entry.uri,
            "path": entry.path,
            "name": entry.name,
            "memory_type": entry.memory_type,
            "accesses": entry.accesses,
            "age_days": max(0.0, -math.log(entry.decay) / rate) if entry.decay > 0.0 else 0.0,
            "decay": entry.decay,
            "salience": entry.salience,
        }
        for entry in page.entries
        if entry.accesses
    ]
