"""What a person reads of a store's use: the trail, hot memories, metrics, and what is nearly said twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory_core.retrieval.hot import HotMemory
    from memory_core.retrieval.insight import SimilarMemories
    from memory_core.retrieval.metrics import Metrics
    from memory_core.storage.tables.usage import Recall


def similar_text(found: SimilarMemories) -> str:
    """A line for each memory, nearest first."""
    lines = [f"{item.score:.2f}  {item.uri}" for item in found.similar]
    lines = lines or [f"Nothing stored is that similar (threshold {found.threshold:g})."]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def trail_text(rows: Sequence[Recall]) -> str:
    """Each retrieval with its hits below it."""
    lines: list[str] = []
    for row in rows:
        took = f"{row.milliseconds:.1f} ms"
        words = " ".join(row.query.split())
        parts = [f"{row.at:%Y-%m-%d %H:%M:%S}", row.kind, took, "cached" if row.cached else "", row.project, words]
        lines.append("  ".join(part for part in parts if part))
        lines += [f"    {score:.2f}  {uri}" for uri, score in row.hits]
    return "\n".join(lines) or "Nothing was retrieved yet."


def hot_text(memories: Sequence[HotMemory]) -> str:
    """A line for each memory, most used first, with its accesses."""
    lines = [f"{found.access_count:>6}  {found.uri}  {found.abstract}".rstrip() for found in memories]
    return "\n".join(lines) or "No memory was used yet."


def metrics_text(metrics: Metrics) -> str:
    """A line for each figure."""
    lines: list[str] = []
    for name, value in metrics.as_dict().items():
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
