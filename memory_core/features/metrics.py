"""``viking://metrics``: the figures of the reader's spaces as a page that ``read`` shows, in JSON.

Like the pages of history it is no ``MemoryUri``: nothing can be written, indexed or found there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.feature import Feature
from memory_core.core.index.indexer import healed
from memory_core.core.memory.requests import ReadRequest

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memory_core.core.index import embedding_queue
from memory_core.core.index.indexer import Indexer
from memory_core.core.memory.results import Listing, ReadResult
from memory_core.core.memory.uri import SCHEME
from memory_core.core.search.browse import page_of
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.usage import ModelCalls

if TYPE_CHECKING:
    from memory_core.core.index.chroma_upkeep import ServerState


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
        waiting_sessions: Conversations that wait for extraction.
        waiting_messages: Their messages that wait.
        directories: Directories that hold memories.
        size_bytes: Of all files, the archive and conversations included.
        state_bytes: Of ledger, index and vectors, by name; of the whole folder, empty for one who sees part of it.
        accesses: How often memories and messages were retrieved or read, ever.
        used: How many of them were, once at least.
        commits: Commits by kind.
        model_calls: Calls of language models and their tokens, by purpose and model.
        retrievals: Retrievals in the trail, which is bounded.
        p50_ms: Half of them took no longer; None without any.
        p99_ms: All but one in a hundred took no longer.
        cached: How many of them a cache answered.
        passages: Texts to be found by meaning.
        vectors: How many of them have a vector of the model in use; None while it is not loaded.
        waiting: How many still wait for one; None while it is not loaded.
        embedded: Vectors that were computed since the index was made, of the whole store.
        reused: Texts that came again meanwhile and had their vector; likewise.
        vector_server: Where vectors are sent, if they are; its address is told with ``state_bytes`` only.
    """

    cells: Mapping[tuple[str, str], int]
    mean_salience: float | None
    mean_confidence: float | None
    pinned: int
    archived: int
    messages: int
    sessions: int
    segments: int
    waiting_sessions: int
    waiting_messages: int
    directories: int
    size_bytes: int
    state_bytes: Mapping[str, int]
    accesses: int
    used: int
    commits: Mapping[str, int]
    model_calls: tuple[ModelCalls, ...]
    retrievals: int
    p50_ms: float | None
    p99_ms: float | None
    cached: int
    passages: int
    vectors: int | None
    waiting: int | None
    embedded: int
    reused: int
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

    @property
    def cache_hit_rate(self) -> float | None:
        """Share of retrievals that a cache answered, in [0, 1]; None without any."""
        return round(self.cached / self.retrievals, 4) if self.retrievals else None

    @property
    def embedding_cache_hit_rate(self) -> float | None:
        """Share of texts to embed that had their vector, in [0, 1]; None without any."""
        asked = self.embedded + self.reused
        return round(self.reused / asked, 4) if asked else None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        facts: dict[str, Any] = {
            "memories": self.memories,
            "by_type": dict(self.by_type),
            "by_space": dict(self.by_space),
            "mean_salience": self.mean_salience,
            "mean_confidence": self.mean_confidence,
            "pinned": self.pinned,
            "archived": self.archived,
            "messages": self.messages,
            "sessions": self.sessions,
            "segments": self.segments,
            "waiting_extractions": {"sessions": self.waiting_sessions, "messages": self.waiting_messages},
            "directories": self.directories,
            "size_bytes": {"files": self.size_bytes, **self.state_bytes},
            "accesses": self.accesses,
            "used": self.used,
            "commits": dict(self.commits),
            "retrieval": {
                "count": self.retrievals,
                "p50_ms": self.p50_ms,
                "p99_ms": self.p99_ms,
                "cache_hit_rate": self.cache_hit_rate,
            },
            "index": {
                "passages": self.passages,
                "vectors": self.vectors,
                "waiting": self.waiting,
                "cache_hit_rate": self.embedding_cache_hit_rate,
            },
            "models": [made.as_dict() for made in self.model_calls],
        }
        if self.vector_server is not None:
            facts["vector_server"] = self.vector_server.as_dict()
        return facts

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
    holdings = ledger.holdings
    waiting_sessions, waiting_messages = holdings.waiting(sessions)
    embedder = indexer.embedder
    indexer.progress()  # what a model has no vectors of begins to wait with its first use
    known = embedder is None or embedder.ready()
    fingerprint = embedder.fingerprint if embedder is not None and known else None
    passages, behind = embedding_queue.standing(indexer.catalog.connection(), spaces, fingerprint)
    embedded, reused = embedding_queue.effort(indexer.catalog.connection())
    return Metrics(
        cells=cells,
        mean_salience=mean_salience,
        mean_confidence=mean_confidence,
        pinned=pinned,
        archived=holdings.files(archive, _MEMORIES)[0] - holdings.files(archive, _SUMMARIES)[0],
        messages=messages,
        sessions=conversations,
        segments=holdings.files(sessions, _SEGMENTS)[0],
        waiting_sessions=waiting_sessions,
        waiting_messages=waiting_messages,
        directories=sum(ledger.directories.total(root) for root in roots),
        size_bytes=holdings.files([*roots, *archive])[1],
        state_bytes={} if state is None else dict(_sizes(state)),
        accesses=accesses,
        used=used,
        commits=holdings.commits([*roots, *archive]),
        model_calls=tuple(ledger.model_calls.totals(user_space)),
        retrievals=len(latencies.milliseconds),
        p50_ms=percentile(latencies.milliseconds, 50),
        p99_ms=percentile(latencies.milliseconds, 99),
        cached=latencies.cached,
        passages=passages,
        vectors=(0 if embedder is None else passages - behind) if known else None,
        waiting=behind if known else None,
        embedded=embedded,
        reused=reused,
        vector_server=_server(indexer, spaces, whole=state is not None),
    )


def _server(indexer: Indexer, spaces: Sequence[str], *, whole: bool) -> ServerState | None:
    if indexer.vectors.server is None:
        return None
    from memory_core.core.index.chroma_upkeep import look

    found = look(indexer.vectors.server, indexer.catalog.connection(), spaces)
    return found if whole else replace(found, place="", hint=None)


def spaces_of(indexer: Indexer) -> tuple[str, ...]:
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
            f"WHERE space IN ({_marks(spaces)}) AND part = 0 AND context_type <> 'resource' "
            "GROUP BY space, memory_type ORDER BY 3 DESC, 1, 2",
            tuple(spaces),
        )
        .fetchall()
    )
    cells = {(str(space), str(memory_type)): int(count) for space, memory_type, count, *_ in rows}
    memories = sum(cells.values())
    salience, confidence, pinned = (sum(float(row[column]) for row in rows) for column in (3, 4, 5))
    if not memories:
        return cells, None, None, 0
    return cells, round(salience / memories, 4), round(confidence / memories, 4), int(pinned)


def _conversations(indexer: Indexer, spaces: Sequence[str]) -> tuple[int, int]:
    """How many messages there are, and conversations."""
    row = indexer.catalog.connection().execute(
        "SELECT count(*), count(DISTINCT uri) FROM documents "
        f"WHERE space IN ({_marks(spaces)}) AND memory_type = 'message'",
        tuple(spaces),
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


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "runebook_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

#: Labels of a sample with their values, and its value; None is not known.
Sample = tuple[Mapping[str, str], float | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without the prefix, its kind, what it means, its samples."""

    name: str
    kind: Literal["gauge", "counter"]
    about: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterator[str]:
        """Its lines; none where nothing is known."""
        known = [(labels, value) for labels, value in self.samples if value is not None]
        if not known:
            return
        yield f"# HELP {_PREFIX}{self.name} {self.about}"
        yield f"# TYPE {_PREFIX}{self.name} {self.kind}"
        for labels, value in known:
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{_PREFIX}{self.name}{{{shown}}} {value}" if shown else f"{_PREFIX}{self.name} {value}"


def exposition(metrics: Metrics) -> str:
    """All figures as one text; it ends with a line feed."""
    families = (*_holdings(metrics), *_use(metrics), *_index(metrics), *_models(metrics))
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _holdings(metrics: Metrics) -> Iterator[Family]:
    cells = [({"space": space, "type": name}, count) for (space, name), count in metrics.cells.items()]
    yield Family("memories", "gauge", "Memories by space and type.", tuple(cells or [({}, 0)]))
    yield _gauge("memories_pinned", "Memories that never decay or leave by themselves.", metrics.pinned)
    yield _gauge("memories_archived", "Memories in the archive.", metrics.archived)
    yield _gauge("memory_salience_mean", "Mean importance of memories, 0 to 1.", metrics.mean_salience)
    yield _gauge("memory_confidence_mean", "Mean confidence of memories, 0 to 1.", metrics.mean_confidence)
    yield _gauge("sessions", "Conversations.", metrics.sessions)
    yield _gauge("messages", "Messages of conversations.", metrics.messages)
    yield _gauge("segments", "Topics of conversations.", metrics.segments)
    yield _gauge("waiting_sessions", "Conversations that wait for extraction.", metrics.waiting_sessions)
    yield _gauge("waiting_messages", "Messages that wait for extraction.", metrics.waiting_messages)
    yield _gauge("directories", "Directories that hold memories.", metrics.directories)
    sizes = {"files": metrics.size_bytes, **metrics.state_bytes}
    yield Family("size_bytes", "gauge", "Size on disk, in bytes.", _by("part", sizes.items()))


def _use(metrics: Metrics) -> Iterator[Family]:
    # A purge may take from the sums of accesses and commits; Prometheus reads that as a counter that began anew.
    yield Family(
        "accesses_total", "counter", "Retrievals and reads of memories and messages.", (({}, metrics.accesses),)
    )
    yield _gauge("used", "Memories and messages that were used once at least.", metrics.used)
    yield Family("commits_total", "counter", "Commits by kind.", _by("kind", metrics.commits.items()))
    latencies = {"0.5": _seconds(metrics.p50_ms), "0.99": _seconds(metrics.p99_ms)}
    yield Family(
        "retrieval_latency_seconds",
        "gauge",
        "Time that half, and all but one in a hundred, of the last retrievals took no longer than.",
        _by("quantile", latencies.items()),
    )
    yield _gauge("retrievals", "Retrievals in the trail, which is bounded.", metrics.retrievals)
    rates = {"query": metrics.cache_hit_rate, "embedding": metrics.embedding_cache_hit_rate}
    yield Family(
        "cache_hit_ratio", "gauge", "Share that a cache answered, 0 to 1, by cache.", _by("cache", rates.items())
    )


def _index(metrics: Metrics) -> Iterator[Family]:
    yield _gauge("passages", "Texts to be found by meaning.", metrics.passages)
    yield _gauge("passages_embedded", "Of them, those with a vector of the model in use.", metrics.vectors)
    yield _gauge("passages_waiting", "Of them, those that wait for a vector.", metrics.waiting)
    server = metrics.vector_server
    if server is not None:
        yield _gauge("vector_server_up", "Whether the vector server answers.", int(server.trouble is None))
        yield _gauge("vector_server_rows", "Vectors that it holds.", server.held)
        yield _gauge("vector_server_waiting", "Vectors that are to be sent to it.", server.waiting)


def _models(metrics: Metrics) -> Iterator[Family]:
    calls = [
        ({"space": call.space, "purpose": call.purpose, "model": call.model}, call) for call in metrics.model_calls
    ]
    yield Family(
        "model_calls_total",
        "counter",
        "Calls of language models, by purpose and model; failures included.",
        tuple((labels, call.calls) for labels, call in calls),
    )
    yield Family(
        "model_failures_total",
        "counter",
        "Calls of language models that brought no answer.",
        tuple((labels, call.failures) for labels, call in calls),
    )
    yield Family(
        "model_tokens_total",
        "counter",
        "Tokens that language models read (prompt; cached is a share of it) and wrote (completion).",
        tuple(
            ({**labels, "kind": kind}, count)
            for labels, call in calls
            for kind, count in (
                ("prompt", call.prompt_tokens),
                ("completion", call.completion_tokens),
                ("cached", call.cached_tokens),
            )
        ),
    )


def _gauge(name: str, about: str, value: float | None) -> Family:
    return Family(name, "gauge", about, (({}, value),))


def _by(label: str, values: Iterable[tuple[str, float | None]]) -> tuple[Sample, ...]:
    return tuple(({label: name}, value) for name, value in values)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _escaped(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").translate(_ESCAPES)


METRICS_URI = f"{SCHEME}metrics"
_ABOUT = "how much is stored, how it is used, how fast it is found, what models cost"


def is_metrics(uri: str) -> bool:
    """Whether an address is that of the metrics."""
    return uri.rstrip("/") == METRICS_URI


def read_metrics(metrics: Metrics, offset: int = 0, limit: int = -1, limit_chars: int | None = None) -> ReadResult:
    """Lines of the page; the arguments are those of ``Browser.read``."""
    text = json.dumps(metrics.as_dict(), ensure_ascii=False, indent=2) + "\n"
    return page_of(METRICS_URI, text, offset, limit, limit_chars)


def metrics_listing(at: str, abs_limit: int | None) -> Listing:
    """The line of ``ls viking://`` that leads to it; ``at`` is ISO 8601, without ``abs_limit`` there is no abstract."""
    return Listing(METRICS_URI, "metrics", False, 0, at, None if abs_limit is None else _ABOUT[:abs_limit])


@dataclass(frozen=True, slots=True)
class StatsRequest:
    """Show what is stored, how it is used and how fast it is found."""

    whole: Annotated[bool, Arg(help="Of all users and agents, with the size of ledger and index.", flag="--all")] = (
        False
    )
    wait: Annotated[bool, Arg(surfaces=NOWHERE)] = True


@healed
def stats(memory: Runebook, request: StatsRequest) -> Metrics:
    """All figures; ``wait`` for a model that loads: without it, nobody knows yet which vectors are missing."""
    store, indexer, config = memory.store, memory.indexer, memory.config
    store.usage.flush()
    indexer.follow()
    if request.wait and indexer.embedder is not None:
        indexer.embedder.ready(config.embedding.wait_seconds)
    if not request.whole:
        return collect(store.ledger, indexer, memory.spaces, config.user_space)
    spaces = tuple(dict.fromkeys((*memory.spaces, *spaces_of(indexer))))
    return collect(store.ledger, indexer, spaces, None, store.files.state)


STATS = Command("stats", StatsRequest, stats)


class _Page:
    """``viking://metrics``, for ``read`` and ``ls``."""

    def holds(self, uri: str) -> bool:
        """Whether it is this page."""
        return is_metrics(uri)

    def read(self, memory: Runebook, request: ReadRequest) -> ReadResult:
        """Lines of the page."""
        return read_metrics(stats(memory, StatsRequest()), request.offset, request.limit, request.limit_chars)

    def listing(self, memory: Runebook, abs_limit: int | None) -> tuple[Listing, ...]:
        """The line of ``ls viking://``."""
        newest = memory.store.ledger.past.commits(memory.spaces, limit=1)
        return tuple(metrics_listing(commit.at, abs_limit) for commit in newest)


FEATURE = Feature(commands=(STATS,), pages=_Page())
