"""Metrics in the text format that Prometheus scrapes, version 0.0.4: a HELP and a TYPE line, then samples. Pure.

Counters end in ``_total`` and never fall; what may fall is a gauge. Units are seconds and bytes. What is not known has
no sample. Names of types, spaces and models come from users and providers, and are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from memory_core.retrieval.metrics import Metrics

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
