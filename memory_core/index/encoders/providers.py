"""From settings to models; a library is imported only for the provider in use, and only when it loads."""

from __future__ import annotations

from memory_core.config import EmbeddingConfig, SearchConfig
from memory_core.errors import ConfigInvalid
from memory_core.index.encoders.embedder import BundledEmbedder, Embedder
from memory_core.index.encoders.reranker import Reranker


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
    from memory_core.index.encoders.sentence_transformers import SentenceTransformersEmbedder

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
    from memory_core.index.encoders.sentence_transformers import CrossEncoderReranker

    return CrossEncoderReranker(config.rerank_model.strip())
