"""``viking://metrics``: the figures of the reader's spaces as a page that ``read`` shows, in JSON.

Like the pages of history it is no ``MemoryUri``: nothing can be written, indexed or found there.
"""

from __future__ import annotations

import json

from memory_core.model.hits import Listing, ReadResult
from memory_core.model.uri import SCHEME
from memory_core.retrieval.browse import page_of
from memory_core.retrieval.metrics import Metrics

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
