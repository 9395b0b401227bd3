"""Looking around: searching, the tree, the types, and which store this is."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from memory_core.core.caller import Access
from memory_core.core.memory.memory_type import MemoryType
from memory_core.core.memory.requests import FindRequest, TreeRequest
from memory_core.core.memory.results import Hit
from memory_core.core.memory.uri import SCHEME, file_of
from memory_core.features.upkeep.passes import passes
from memory_core.runebook import Runebook
from memory_core.version import program_version
from server.api import answers
from server.api.caller import Reader
from server.api.questions import SearchQuestion
from server.api.refusals import Refusal, declared
from server.http.authentication import identity

routes = APIRouter(tags=["looking"])
_RANKS = ["balanced", "decay", "weighted", "relevance"]
_TREE_NODES = 5_000


@routes.get("/about", response_model=answers.AboutAnswer, responses=declared(), response_model_exclude_none=True)
def about(memory: Reader) -> Any:
    """Which store this is, and what the caller may do."""
    config, bearer = memory.config, identity()
    embedder = memory.indexer.embedder
    memory.indexer.follow()
    return {
        "version": program_version(),
        "user_space": config.user_space,
        "agent_space": config.agent_space,
        "label": None if bearer is None else bearer.label,
        "owner": bearer is None,
        "writable": memory.access is Access.READ_WRITE,
        "private_mode": memory.access is Access.PRIVATE,
        "project": memory.projects.current(None),
        "decay_lambda": config.search.decay_lambda,
        "half_life_days": math.log(2) / config.search.decay_lambda,
        "heat_threshold": config.tiers.mid_term_heat_threshold,
        "rank": config.search.rank,
        "ranks": _RANKS,
        "types": [known.name for known in memory.registry.list_all()],
        "counts": memory.catalogue.counts(),
        "passes": [each.name for each in passes(memory)],
        "review": config.review,
        "model": {
            "embedding": config.embedding.provider,
            "embedding_ready": embedder is not None and embedder.ready(0),
            "llm": config.llm.provider,
            "llm_model": config.llm.model,
        },
    }


@routes.get("/types", response_model=answers.TypesAnswer, responses=declared())
def types(memory: Reader) -> Any:
    """All memory types with their fields."""
    return {"types": [_type_facts(memory, known) for known in memory.registry.list_all()]}


@routes.post("/search", response_model=answers.SearchAnswer, responses=declared(404, 413, 415))
def search(memory: Reader, asked: SearchQuestion) -> Any:
    """What answers a query, best first, with what each score is made of."""
    started = time.perf_counter()
    found = memory.find(
        FindRequest(
            asked.query,
            asked.target_uri,
            asked.limit,
            score_threshold=asked.score_threshold,
            filter=_filter(asked),
            rank=_rank(memory, asked),
            project=asked.project,
        )
    )
    used = memory.store.ledger.usage_table.usage(hit.uri for hit in found.hits)
    hits = [_hit_facts(hit, used[hit.uri].access_count if hit.uri in used else 0) for hit in found.hits]
    return {
        "hits": hits,
        "total": len(hits),
        "notes": list(found.notes),
        "milliseconds": round(1_000 * (time.perf_counter() - started), 3),
    }


@routes.get("/tree", response_model=answers.TreeAnswer, responses=declared(404), response_model_exclude_none=True)
def tree(
    memory: Reader,
    uri: Annotated[str, Query(max_length=4_096, examples=["viking://user/default/memories"])] = SCHEME,
    depth: Annotated[int, Query(ge=1, le=16)] = 1,
    hidden: Annotated[bool, Query(description="Also .abstract.md and .overview.md.")] = False,
    limit: Annotated[int, Query(ge=1, le=_TREE_NODES)] = 1_000,
) -> Any:
    """What is below a directory, depth first."""
    found = memory.tree(TreeRequest(uri, show_all_hidden=hidden, node_limit=limit, level_limit=depth))
    entries = [{**entry.as_dict(), "path": entry.uri.removeprefix(SCHEME).rstrip("/")} for entry in found.entries]
    return {"entries": entries, "left_out": found.left_out}


def _type_facts(memory: Runebook, known: MemoryType) -> dict[str, Any]:
    keys = known.key_fields
    return {
        "name": known.name,
        "description": known.description,
        "directory": memory.commits.context(datetime.now(UTC), "", None).directory_text(known),
        "mode": "template" if known.template_mode else "simple",
        "salience": known.salience,
        "fields": [
            {
                "name": field.name,
                "type": str(field.type),
                "description": field.description,
                "merge_op": str(field.merge_op),
                "key": field.name in keys,
            }
            for field in known.fields
        ],
    }


def _filter(asked: SearchQuestion) -> dict[str, Any] | None:
    simple = {"category": asked.category, "memory_type": asked.memory_type}
    parts: list[dict[str, Any]] = [{name: value} for name, value in simple.items() if value is not None]
    if asked.filter:
        parts.append(asked.filter)
    return {"and": parts} if parts else None


def _rank(memory: Runebook, asked: SearchQuestion) -> str | None:
    if asked.rank is not None:
        if not asked.use_decay and asked.rank != "relevance":
            raise Refusal(400, "without decay there is only the rank relevance.", "Leave rank or use_decay out.")
        return asked.rank
    if not asked.use_decay:
        return "relevance"
    return "balanced" if memory.config.search.rank == "relevance" else None


def _hit_facts(hit: Hit, accesses: int) -> dict[str, Any]:
    file = file_of(hit.uri)
    parts = file.split("/")
    name = parts[-2] if parts[-1] == "messages.jsonl" else parts[-1].removesuffix(".md")
    return {**hit.as_dict(), "path": file.removeprefix(SCHEME), "name": name, "accesses": accesses}
