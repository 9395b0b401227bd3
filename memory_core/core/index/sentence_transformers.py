"""Embedders and rerankers of the sentence-transformers library, by name or local folder.

Owns everything that touches that library and torch; both are imported by the loading thread and never before.
Promises that a folder is loaded without the network, that a name is looked up in the local cache first, that
no code from a model's repository is run, and that whatever fails is an ``EmbeddingFailed`` with the next step.

A model reads the first ``max_seq_length`` tokens of a text (256 to 512 with most; 8,192 with some) and ignores the
rest. Passages are cut at 1,500 characters, about 350 tokens in English and 1,000 to 1,500 in Chinese: what lies
beyond a model's limit is found by words, not by meaning.

Computes on one thread, or on as many as ``OMP_NUM_THREADS`` says.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_core.core.errors import EmbeddingFailed
from memory_core.core.index.encoder import BackgroundModel, Scale, measure_scale, refuse_blank

if TYPE_CHECKING:
    from memory_core.core.config import EmbeddingConfig
    from memory_core.core.index.encoder import Vectors

_INSTALL = "pip install sentence-transformers"
#: Of each weight tensor so many bytes at either end are hashed: training changes them all.
_SAMPLED_BYTES = 16_384
_RERANKED_CHARS = 4_000
_RERANK_BATCH = 16
#: Of a model that is not loaded yet; nothing can have been compared with it.
_PROVISIONAL = Scale(zero=0.0, near=0.6)
#: Heads that judge a pair; any other would be a new one, with random weights.
_JUDGES = ("SequenceClassification", "CausalLM", "ConditionalGeneration")


@dataclass(frozen=True, slots=True, eq=False)
class _Encoder:
    model: Any
    fingerprint: str
    scale: Scale


class SentenceTransformersEmbedder(BackgroundModel[_Encoder]):
    """A SentenceTransformer model.

    Args:
        config: The model by its name on its hub, or a local folder; prompts, of which an empty one is the model's own,
            if it has one; its device, or auto for a GPU where there is one; and how many texts are computed at once.
    """

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self._name = config.model.strip()
        super().__init__(self._load)
        self._encoding = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Names weights, tokenizer, pooling and passage prompt; waits for the model.

        The query prompt changes no vector that is stored, and a folder's place says nothing about its model.

        Raises:
            EmbeddingFailed: If the model cannot be loaded.
        """
        return self.get().fingerprint

    @property
    def scale(self) -> Scale:
        """As measured when the model was loaded (``measure_scale``); before, that of the bundled model."""
        return _PROVISIONAL if self._model is None else self._model.scale

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Vectors float32 (n, dim), L2-normalised; each of the text's first ``max_seq_length`` tokens.

        Raises:
            EmbeddingFailed: If the model cannot be loaded or run, or a text is blank.
        """
        refuse_blank(texts)
        model = self.get().model
        return (
            self._encode(model.encode_query, texts, self._config.query_prompt)
            if query
            else self._passages(model, texts)
        )

    def _passages(self, model: Any, texts: Sequence[str]) -> Vectors:
        return self._encode(model.encode_document, texts, self._config.passage_prompt)

    def _encode(self, encode: Callable[..., Any], texts: Sequence[str], prompt: str) -> Vectors:
        import numpy as np

        try:
            with self._encoding:  # its tokenizer may not be used by two threads at once
                found = encode(
                    list(texts),
                    prompt=prompt or None,
                    batch_size=self._config.batch,
                    normalize_embeddings=True,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                )
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            raise _failed(self._name, "run", error) from error
        vectors: Vectors = np.ascontiguousarray(found, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise EmbeddingFailed(
                f"the model '{self._name}' gives vectors that are no numbers.", hint="Use another embedding.model."
            )
        return vectors

    def _load(self) -> _Encoder:
        device = None if self._config.device == "auto" else self._config.device
        model = _loaded("SentenceTransformer", self._name, device)
        scale = measure_scale(lambda texts: self._passages(model, texts))
        dimension = model.get_embedding_dimension()
        fingerprint = f"sentence-transformers-{_digest(model, self._config.passage_prompt)}-{dimension}"
        return _Encoder(model, fingerprint, scale)


class CrossEncoderReranker(BackgroundModel[Any]):
    """A CrossEncoder model of one label: a logit for each pair of question and text.

    A pair longer than the model's limit is truncated by it, its longer half first.

    Args:
        name: On its hub, or a local folder.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__(self._load)
        self._scoring = threading.Lock()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """The sigmoid of each pair's logit, in [0, 1], in the order given.

        Raises:
            EmbeddingFailed: If the model cannot be loaded or run.
        """
        if not texts:
            return []
        model = self.get()
        pairs = [(query[:_RERANKED_CHARS], text[:_RERANKED_CHARS]) for text in texts]
        import torch

        try:
            with self._scoring:
                found = model.predict(
                    pairs, batch_size=_RERANK_BATCH, activation_fn=torch.nn.Sigmoid(), show_progress_bar=False
                )
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            raise _failed(self._name, "run", error) from error
        return [min(1.0, max(0.0, float(score))) for score in found]

    def _load(self) -> Any:
        model = _loaded("CrossEncoder", self._name, "cpu")
        heads = getattr(model[0].config, "architectures", None) or [""]
        if model.num_labels != 1 or not any(judge in head for judge in _JUDGES for head in heads):
            raise EmbeddingFailed(
                f"the model '{self._name}' does not judge pairs of question and text.",
                hint="Set search.rerank_model to a cross-encoder of one label, or leave it empty.",
            )
        return model


def _loaded(kind: str, name: str, device: str | None) -> Any:
    """A model of the library, from a folder, else its local cache, else the network.

    Raises:
        EmbeddingFailed: If the package is missing or the model cannot be loaded.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir() and (folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1):
        raise EmbeddingFailed(f"the model folder '{name}' does not exist.", hint="Correct the path in the settings.")
    try:
        import sentence_transformers
        import torch
        from safetensors import SafetensorError
        from transformers.utils import logging as transformers_logging
    except (ImportError, OSError) as error:  # OSError: libraries of torch that do not load
        raise EmbeddingFailed(
            f"the package sentence-transformers cannot be imported: {error}.",
            hint=f"Run {_INSTALL}, or set embedding.provider to bundled and search.rerank_model to nothing.",
        ) from error
    threads = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list has a number for each level
    torch.set_num_threads(max(1, int(threads)) if threads.isdecimal() else 1)
    transformers_logging.disable_progress_bar()
    _show_downloads_to_people()
    build = getattr(sentence_transformers, kind)
    broken = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, EOFError, SafetensorError)
    try:
        if folder.is_dir():
            return build(str(folder), device=device, local_files_only=True)
        try:
            return build(name, device=device, local_files_only=True)
        except OSError:
            return build(name, device=device)
    except broken as error:
        raise _failed(name, "loaded", error) from error


def _show_downloads_to_people() -> None:
    """A bar on stderr where that is a terminal; a server's host gets none into its log."""
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import enable_progress_bars

    if sys.stderr is not None and sys.stderr.isatty() and not constants.HF_HUB_DISABLE_PROGRESS_BARS:
        enable_progress_bars()


def _failed(name: str, what: str, error: Exception) -> EmbeddingFailed:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return EmbeddingFailed(
        f"the model '{name}' could not be {what}: {reason[0][:300]}.",
        hint="Check its name and the network, or download it and give its folder; search goes on by words meanwhile.",
    )


def _digest(model: Any, passage_prompt: str) -> str:
    """Tells models apart by what decides their passage vectors, wherever they were loaded from."""
    prompts = [model.prompts.get(name) for name in ("document", "passage", "corpus")]
    own = next((prompt for prompt in prompts if prompt), "")
    described = [type(module).__name__ for module in model] + [str(model.max_seq_length), passage_prompt or own]
    for module in model:
        settings: dict[str, Any] = getattr(module, "get_config_dict", dict)()
        described += [f"{key}={settings[key]}" for key in sorted(settings)]
    vocabulary: dict[str, int] = getattr(model.tokenizer, "get_vocab", dict)()
    described += [f"{token}={vocabulary[token]}" for token in sorted(vocabulary)]
    digest = hashlib.sha256("\0".join(described).encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(model.state_dict().items()):
        import torch

        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(f"\0{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(data[:_SAMPLED_BYTES].numpy().tobytes())
        digest.update(data[-_SAMPLED_BYTES:].numpy().tobytes())
    return digest.hexdigest()[:16]
