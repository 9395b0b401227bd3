"""What ours is compared with, over the same passages in the same run: BM25 alone, and cosine alone.

``LexicalBaseline`` is SQLite's own ``bm25()`` over the words of a turn, with the tokenizer that the product uses
(English stemming, Chinese character pairs), and nothing else: no neighbours, no dates, no exact places.
``EncoderBaseline`` is the cosine of the bundled model over a turn with two neighbours on each side, scanned exactly.
Neither has a floor. Both take a passage's id and answer with ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.corpus import Passage
from memory_core.core.index.encoder import Embedder
from memory_core.core.index.tokenizer import query_terms
from memory_core.core.text.analysis import index_tokens
from memory_core.core.text.normalization import simplified

_BATCH = 256


class LexicalBaseline:
    """BM25 over the passages' own words."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._ids = [passage.id for passage in passages]
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE words USING fts5 (own, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        self._database.executemany(
            "INSERT INTO words (rowid, own) VALUES (?, ?)",
            ((at, index_tokens(passage.own)) for at, passage in enumerate(passages, 1)),
        )

    def search(self, query: str, limit: int) -> list[str]:
        """Ids of the best passages, best first; none if no word is shared."""
        terms = query_terms(query)
        if not terms:
            return []
        rows = self._database.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words), rowid LIMIT ?",
            (" OR ".join(terms), limit),
        )
        return [self._ids[rowid - 1] for (rowid,) in rows]

    def close(self) -> None:
        """Let go of the table."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class EncoderBaseline:
    """Cosine over the passages with their neighbours; a passage of several pieces counts by its best.

    Args:
        passages: What can be found.
        embedder: A loaded model.
    """

    def __init__(self, passages: Sequence[Passage], embedder: Embedder) -> None:
        self._embedder = embedder
        self._ids = [passage.id for passage in passages for _ in passage.around]
        texts = [simplified(text) for passage in passages for text in passage.around]
        batches = [embedder.embed(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        self._vectors: NDArray[np.float32] = np.concatenate(batches)

    def search(self, query: str, limit: int) -> list[str]:
        """Ids of the nearest passages, nearest first."""
        cosines = self._vectors @ self._embedder.embed([simplified(query)], query=True)[0]
        order = np.argsort(-cosines, kind="stable")
        found: dict[str, None] = {}
        for at in order:
            found.setdefault(self._ids[at])
            if len(found) == limit:
                break
        return list(found)
