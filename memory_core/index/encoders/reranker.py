"""What a reranker promises: a second, slower opinion on the best few hits.

A cross-encoder reads question and text together and so tells an answer from a text about the same things, at
the price of one run of a model for each text. Optional; search never depends on one. The implementation that
is shipped is in ``sentence_transformers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memory_core.errors import EmbeddingFailed


class Reranker(Protocol):
    """A model that judges how well texts answer a question."""

    @property
    def fingerprint(self) -> str:
        """Names model and weights, as far as known without loading it; scores of another are not comparable."""
        ...

    @property
    def failure(self) -> EmbeddingFailed | None:
        """Why the model cannot be used; None while it loads and when it is there."""
        ...

    def start(self) -> None:
        """Begin loading in the background; returns at once and may be called again."""
        ...

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether ``scores`` answers without loading, waiting up to the timeout, less if it loads very long."""
        ...

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers, in [0, 1], in the order given; an empty list for no texts.

        Raises:
            EmbeddingFailed: If the model cannot be loaded or run.
        """
        ...
