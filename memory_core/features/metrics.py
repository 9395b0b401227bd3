"""``viking://metrics``: the figures of the reader's spaces as a page that ``read`` shows, in JSON.

Like the pages of history it is no ``MemoryUri``: nothing can be written, indexed or found there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.feature import Feature
from memory_core.core.index import embedding_queue
from memory_core.core.index.indexer import Indexer, healed
from memory_core.core.memory.requests import ReadRequest
from memory_core.core.memory.results import Listing, ReadResult, as_json
from memory_core.core.memory.uri import SCHEME
from memory_core.core.search.browse import page_of
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.usage import ModelCalls
from memory_core.core.text.word_table import word_table

if TYPE_CHECKING:
    from memory_core.core.index.chroma_upkeep import ServerState
    from memory_core.runebook import Runebook

_METRICS_URI = f"{SCHEME}metrics"
_ABOUT = "how much is stored, how it is used, how fast it is found, what models cost"
_ARCHIVE = "viking://archive"
_SEGMENTS = "*/segments/*.md"
_MEMORIES = "*/memories/*.md"
_SUMMARIES = "*/.*.md"


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one user's and one agent's space, or of all spaces of a folder.

    Attributes:
        cells: How many memories there are, by space (``user/default``) and type, most first.
        mean_salience: Mean importance of all memories, in [0, 1]; None without any.
        mean_confidence: Mean confidence of all memories, in [0, 1]; None without any.
        pinned: Memories that never decay or leave by themselves.
        archived: Memories in the archive; they are not among ``memories``.
        messages: Messages of conversations.
        sessions: Conversations.
        segments: What conversations said about one topic, one file each.
        waiting_extractions: ``sessions`` that wait for extraction, and their ``messages`` that wait.
        directories: Directories that hold memories.
        size_bytes: Of all ``files``, the archive and conversations included; for who sees the whole folder also of
            ``ledger``, ``index`` and ``chroma``, which stands for all files of vectors.
        accesses: How often memories and messages were retrieved or read, ever.
        used: How many of them were, once at least.
        commits: Commits by kind.
        retrieval: Of the retrievals in the trail, which is bounded: their ``count``; ``p50_ms`` and ``p99_ms``, what
            half, and all but one in a hundred, took no longer than; and the ``cache_hit_rate``, the share in [0, 1]
            that a cache answered. None without any.
        index: ``passages``, texts to be found by meaning; how many of them have ``vectors`` of the model in use or are
            ``waiting`` for one, None while it is not loaded; and the ``cache_hit_rate``, the share in [0, 1] of texts
            to embed that had their vector, since the index was made; None without any, and for who does not see the
            whole store, because it counts everybody's.
        models: Calls of language models and their tokens, by purpose and model.
        vector_server: Where vectors are sent, if they are; its address only for who sees the whole folder.
    """

    JSON: ClassVar = (
        "memories by_type by_space mean_salience mean_confidence pinned archived messages sessions segments "
        "waiting_extractions directories size_bytes accesses used commits retrieval index models vector_server?"
    )

    cells: Mapping[tuple[str, str], int]
    mean_salience: float | None
    mean_confidence: float | None
    pinned: int
    archived: int
    messages: int
    sessions: int
    segments: int
    waiting_extractions: Mapping[str, int]
    directories: int
    size_bytes: Mapping[str, int]
    accesses: int
    used: int
    commits: Mapping[str, int]
    retrieval: Mapping[str, float | None]
    index: Mapping[str, float | None]
    models: tuple[ModelCalls, ...]
    vector_server: ServerState | None = None

    @property
    def memories(self) -> int:
        """Memories, of all types."""
        return sum(self.cells.values())

    @property
    def by_type(self) -> Mapping[str, int]:
        """How many there are of each type, most first."""
        return self._summed(1)

    @property
    def by_space(self) -> Mapping[str, int]:
        """How many there are in each space, most first."""
        return self._summed(0)

    def _summed(self, part: int) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        for cell, count in self.cells.items():
            found[cell[part]] += count
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def collect(
    ledger: Ledger, indexer: Indexer, spaces: Sequence[str], user_space: str | None, state: Path | None = None
) -> Metrics:
    """Take all figures; the index must have followed the ledger.

    Args:
        ledger: Usage, the trail, calls of models.
        indexer: What is stored.
        spaces: ``scope/space`` names that count.
        user_space: Whose retrievals and calls count; None is everybody's.
        state: Folder of ledger and index, where their size may be told.
    """
    roots = [f"viking://{space}" for space in spaces]
    archive = [f"{_ARCHIVE}/{space}" for space in spaces]
    sessions = [root for root in roots if root.startswith("viking://session/")]
    cells, mean_salience, mean_confidence, pinned = _memories(indexer, spaces)
    messages, conversations = _conversations(indexer, spaces)
    used, accesses = ledger.usage_table.totals(roots)
    latencies = ledger.usage_table.latencies(user_space)
    taken = latencies.milliseconds
    holdings = ledger.holdings
    return Metrics(
        cells=cells,
        mean_salience=mean_salience,
        mean_confidence=mean_confidence,
        pinned=pinned,
        archived=holdings.files(archive, _MEMORIES)[0] - holdings.files(archive, _SUMMARIES)[0],
        messages=messages,
        sessions=conversations,
        segments=holdings.files(sessions, _SEGMENTS)[0],
        waiting_extractions=dict(zip(("sessions", "messages"), holdings.waiting(sessions), strict=True)),
        directories=sum(len(ledger.directories.counts(root)) for root in roots),
        size_bytes={"files": holdings.files([*roots, *archive])[1], **({} if state is None else dict(_sizes(state)))},
        accesses=accesses,
        used=used,
        commits=holdings.commits([*roots, *archive]),
        retrieval={
            "count": len(taken),
            "p50_ms": percentile(taken, 50),
            "p99_ms": percentile(taken, 99),
            "cache_hit_rate": _mean(latencies.cached, len(taken)),
        },
        index=_index(indexer, spaces, whole=state is not None),
        models=tuple(ledger.model_calls.totals(user_space)),
        vector_server=_server(indexer, spaces, whole=state is not None),
    )


def _index(indexer: Indexer, spaces: Sequence[str], *, whole: bool) -> Mapping[str, float | None]:
    embedder, connection = indexer.embedder, indexer.catalog.connection()
    indexer.progress()  # what a model has no vectors of begins to wait with its first use
    known = embedder is None or embedder.ready()
    fingerprint = embedder.fingerprint if embedder is not None and known else None
    passages, waiting = embedding_queue.counts(connection, spaces, fingerprint)
    vectors = 0 if embedder is None else passages - waiting
    embedded, reused = embedding_queue.effort(connection) if whole else (0, 0)
    of_model = {"vectors": vectors, "waiting": waiting} if known else {"vectors": None, "waiting": None}
    return {"passages": passages, **of_model, "cache_hit_rate": _mean(reused, embedded + reused)}


def _mean(total: float, count: int) -> float | None:
    """The mean of what adds up to a total; None of nothing."""
    return round(total / count, 4) if count else None


def _server(indexer: Indexer, spaces: Sequence[str], *, whole: bool) -> ServerState | None:
    if indexer.vectors.server is None:
        return None
    from memory_core.core.index.chroma_upkeep import look

    found = look(indexer.vectors.server, indexer.catalog.connection(), spaces)
    return found if whole else replace(found, place="", hint=None)


def _spaces_of(indexer: Indexer) -> tuple[str, ...]:
    """All spaces of a folder that hold anything, as ``scope/space``."""
    rows = indexer.catalog.connection().execute("SELECT DISTINCT space FROM documents ORDER BY space")
    return tuple(str(space) for (space,) in rows)


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """The value that ``percent`` of all do not exceed, by nearest rank; None of nothing.

    Args:
        ascending: Sorted values.
        percent: In (0, 100].
    """
    return ascending[ceil(len(ascending) * percent / 100) - 1] if ascending else None


def _memories(
    indexer: Indexer, spaces: Sequence[str]
) -> tuple[Mapping[tuple[str, str], int], float | None, float | None, int]:
    """How many memories there are by space and type, their mean salience and confidence, and how many are pinned."""
    rows = (
        indexer.catalog.connection()
        .execute(
            "SELECT space, memory_type, count(*), total(salience), total(confidence), total(pinned) FROM documents "
            "WHERE space IN (SELECT value FROM json_each(?)) AND part = 0 AND context_type <> 'resource' "
            "GROUP BY space, memory_type ORDER BY 3 DESC, 1, 2",
            (json.dumps(list(spaces)),),
        )
        .fetchall()
    )
    cells = {(str(space), str(memory_type)): int(count) for space, memory_type, count, *_ in rows}
    memories = sum(cells.values())
    salience, confidence, pinned = (sum(float(row[column]) for row in rows) for column in (3, 4, 5))
    return cells, _mean(salience, memories), _mean(confidence, memories), int(pinned)


def _conversations(indexer: Indexer, spaces: Sequence[str]) -> tuple[int, int]:
    """How many messages there are, and conversations."""
    row = indexer.catalog.connection().execute(
        "SELECT count(*), count(DISTINCT uri) FROM documents "
        "WHERE space IN (SELECT value FROM json_each(?)) AND memory_type = 'message'",
        (json.dumps(list(spaces)),),
    )
    messages, sessions = row.fetchone()
    return int(messages), int(sessions)


def _sizes(state: Path) -> Iterator[tuple[str, int]]:
    """Bytes of the files beside the memories: ledger, index, vectors beside them."""
    patterns = {"ledger": ("ledger.sqlite3*",), "index": ("index.sqlite3*",), "chroma": ("vectors/*", "chroma/**/*")}
    for name, found in patterns.items():
        yield name, sum(_size(path) for pattern in found for path in state.glob(pattern))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # it went away meanwhile
        return 0


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "runebook_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

#: One value of a figure: its labels, and what it is; None is not known.
Sample: TypeAlias = tuple[Mapping[str, str], float | None]


def exposition(metrics: Metrics) -> str:
    """All figures as one text for Prometheus; it ends with a line feed, and leaves out what is not known.

    The table beside this module says where each is: an attribute or a part of one, or one with the label of its parts;
    those it says nothing of are made in ``_by_name``. One whose name ends in ``_total`` is a counter; a purge may take
    from it, which Prometheus reads as a counter that began anew.
    """
    lines: list[str] = []
    by_name = _by_name(metrics)
    for name, (place, about) in word_table(__file__).items():
        samples = _samples(metrics, place) if place else by_name.get(name, ())
        known = [(labels, value) for labels, value in samples if value is not None]
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {_PREFIX}{name} {about}", f"# TYPE {_PREFIX}{name} {kind}"] if known else []
        for labels, value in known:
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{_PREFIX}{name}{f'{{{shown}}}' if shown else ''} {value}")
    return "".join(f"{line}\n" for line in lines)


def _samples(metrics: Metrics, place: str) -> list[Sample]:
    path, _, label = place.rstrip("]").partition("[")
    attribute, _, part = path.partition(".")
    value = getattr(metrics, attribute)
    if label:
        return [({label: name}, each) for name, each in value.items()]
    return [({}, value[part] if part else value)]


def _by_name(metrics: Metrics) -> Mapping[str, Sequence[Sample]]:
    """The figures that are no attribute's, and those of a vector server, if there is one."""
    cells = [({"space": space, "type": name}, count) for (space, name), count in metrics.cells.items()]
    calls = [({"space": each.space, "purpose": each.purpose, "model": each.model}, each) for each in metrics.models]
    latencies = {"0.5": metrics.retrieval["p50_ms"], "0.99": metrics.retrieval["p99_ms"]}
    caches = {"query": metrics.retrieval, "embedding": metrics.index}
    found: dict[str, Sequence[Sample]] = {
        "memories": cells or [({}, 0)],
        "retrieval_latency_seconds": [
            ({"quantile": share}, taken / 1_000) for share, taken in latencies.items() if taken is not None
        ],
        "cache_hit_ratio": [({"cache": name}, figures["cache_hit_rate"]) for name, figures in caches.items()],
        "model_calls_total": [(labels, each.calls) for labels, each in calls],
        "model_failures_total": [(labels, each.failures) for labels, each in calls],
        "model_tokens_total": [
            ({**labels, "kind": kind}, getattr(each, f"{kind}_tokens"))
            for labels, each in calls
            for kind in ("prompt", "completion", "cached")
        ],
    }
    if (server := metrics.vector_server) is not None:
        figures = {"up": int(server.trouble is None), "rows": server.held, "waiting": server.waiting}
        found |= {f"vector_server_{name}": [({}, value)] for name, value in figures.items()}
    return found


def _escaped(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").translate(_ESCAPES)


@dataclass(frozen=True, slots=True)
class StatsRequest:
    """Show what is stored, how it is used and how fast it is found."""

    whole: Annotated[bool, Arg(help="Of all users' and agents' spaces in this folder.", flag="--all")] = False
    wait: Annotated[bool, Arg(surfaces=NOWHERE)] = True


@healed
def stats(memory: Runebook, request: StatsRequest) -> Metrics:
    """All figures; ``wait`` for a model that loads: without it, nobody knows yet which vectors are missing."""
    store, indexer, config = memory.store, memory.indexer, memory.config
    store.usage.flush()
    indexer.follow(spaces=() if request.whole else memory.spaces)
    if request.wait and indexer.embedder is not None:
        indexer.embedder.ready(config.embedding.wait_seconds)
    if not request.whole:
        return collect(store.ledger, indexer, memory.spaces, config.user_space)
    spaces = tuple(dict.fromkeys((*memory.spaces, *_spaces_of(indexer))))
    return collect(store.ledger, indexer, spaces, None, store.files.state)


def metrics_text(metrics: Metrics) -> str:
    """A line for each figure."""
    lines: list[str] = []
    for name, value in as_json(metrics).items():
        if isinstance(value, list):
            lines += [f"{name}:" if value else f"{name}: -", *(f"    {_call_line(call)}" for call in value)]
        elif isinstance(value, dict):
            lines += [f"{name}:", *(f"    {part or '(none)'}: {_figure(figure)}" for part, figure in value.items())]
        else:
            lines.append(f"{name}: {_figure(value)}")
    return "\n".join(lines)


def _call_line(call: Mapping[str, Any]) -> str:
    failures = f", {call['failures']:,} failed" if call["failures"] else ""
    cached = f" ({call['cached_tokens']:,} cached)" if call["cached_tokens"] else ""
    model = f" ({call['model']})" if call["model"] else ""
    tokens = f"{call['prompt_tokens']:,} tokens read{cached}, {call['completion_tokens']:,} written"
    return f"{call['purpose']}{model}: {call['calls']:,} calls{failures}, {tokens}"


def _figure(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:,}"


STATS = Command("stats", StatsRequest, stats, text=metrics_text)


class _Page:
    """``viking://metrics``, for ``read`` and ``ls``."""

    def holds(self, uri: str) -> bool:
        """Whether it is this page."""
        return uri.rstrip("/") == _METRICS_URI

    def read(self, memory: Runebook, request: ReadRequest) -> ReadResult:
        """Lines of the page."""
        text = json.dumps(as_json(stats(memory, StatsRequest())), ensure_ascii=False, indent=2) + "\n"
        return page_of(_METRICS_URI, text, request.offset, request.limit, request.limit_chars)

    def listing(self, memory: Runebook, abs_limit: int | None) -> tuple[Listing, ...]:
        """The line of ``ls viking://``."""
        about = None if abs_limit is None else _ABOUT[:abs_limit]
        newest = memory.store.ledger.past.commits(memory.spaces, limit=1)
        return tuple(Listing(_METRICS_URI, "metrics", False, 0, commit.at, about) for commit in newest)


FEATURE = Feature(commands=(STATS,), pages=_Page())
