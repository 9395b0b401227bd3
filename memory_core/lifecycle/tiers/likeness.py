"""How alike two texts are: by meaning where the embedding model is there, else by their words.

Never waits for a model: one that is still loading, cannot be used, or would have to read too much at once is not asked.
What was embedded is kept for the next time, within one process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memory_core.errors import EmbeddingFailed
from memory_core.index.encoders.embedder import Embedder
from memory_core.model.han import simplified
from memory_core.scoring.fusion import Calibration
from memory_core.update.segmenting import Likeness, by_terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

_KEPT = 4_096
#: Pages of one commit that are compared by meaning; a whole imported conversation is compared by words.
_PAGES_AT_ONCE = 100


class TextLikeness:
    """Compares texts.

    Args:
        embedder: The embedding model as it is now, or None.
    """

    def __init__(self, embedder: Callable[[], Embedder | None]) -> None:
        self._embedder = embedder
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    def of(self, pages: int) -> Likeness:
        """The way to compare while so many pages are sorted."""
        model = self._embedder()
        if model is None or pages > _PAGES_AT_ONCE or not model.ready():
            return by_terms
        return lambda one, other: self._by_meaning(model, one, other)

    def _by_meaning(self, model: Embedder, one: str, other: str) -> float:
        try:
            left, right = self._embedded(model, (one, other))
        except EmbeddingFailed:
            return by_terms(one, other)
        return Calibration(model.scale.zero).similarity(float(left @ right))

    def _embedded(self, model: Embedder, texts: Sequence[str]) -> list[Vector]:
        keys = [(model.fingerprint, text) for text in texts]
        missing = list(dict.fromkeys(key for key in keys if key not in self._vectors))
        if missing:
            for key, vector in zip(missing, model.embed([simplified(text) for _, text in missing]), strict=True):
                self._vectors[key] = vector
        found = [self._vectors[key] for key in keys]
        for key in keys:
            self._vectors.move_to_end(key)
        while len(self._vectors) > _KEPT:
            self._vectors.popitem(last=False)
        return found
