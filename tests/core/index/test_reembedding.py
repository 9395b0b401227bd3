"""Vectors follow the passages and the model in use, and searches go on meanwhile."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_core.core.config import Config, EmbeddingConfig, SearchConfig
from memory_core.core.errors import EmbeddingFailed
from memory_core.core.index import embedding_queue, vectors
from memory_core.core.index.embedding_queue import PassageEmbedding, Progress
from memory_core.core.index.encoder import BackgroundModel, BundledEmbedder, Scale, embed_passages, measure_scale
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook, open_memory
from server.cli import main
from tests.stores import fact, handed_in, said, write
from tests.waiting import soon

USER = "viking://user/default/memories"

OWN = ["user/default", "agent/default", "session/default"]
TOPICS = ("bees and honey", "养蜂和蜂蜜", "the night train", "夜班火车", "a cracked violin", "一把旧小提琴")


class HalvedEmbedder(BundledEmbedder):
    """Another model: 256 dimensions, every other one of the bundled model's."""

    fingerprint = "halved-256"
    scale = Scale(zero=0.0, near=0.6)

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        self.texts += len(texts)
        halved = super().embed(texts, query=query)[:, ::2]
        return np.ascontiguousarray(halved / np.linalg.norm(halved, axis=1, keepdims=True), dtype=np.float32)


class CountingEmbedder(BundledEmbedder):
    """The bundled model, counting; may be held back."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0
        self.sizes_chars: list[int] = []
        self.allowed = threading.Event()
        self.allowed.set()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        if len(texts) > 1:
            self.allowed.wait(120)  # never for good: a test that fails must end
        self.texts += len(texts)
        self.sizes_chars.append(sum(map(len, texts)))
        return super().embed(texts, query=query)


@pytest.fixture(scope="module")
def loaded() -> BundledEmbedder:
    model = BundledEmbedder()
    assert model.ready(60.0)
    return model


def counting(loaded: BundledEmbedder) -> CountingEmbedder:
    model = CountingEmbedder()
    model._model = loaded._model
    return model


def halved(loaded: BundledEmbedder) -> HalvedEmbedder:
    model = HalvedEmbedder()
    model._model = loaded._model
    return model


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with opened(tmp_path) as found:
        yield found


def opened(home: Path, wait_seconds: float = 30.0) -> Runebook:
    settings = EmbeddingConfig(wait_seconds=wait_seconds)
    memory = open_memory(Config(home=home, embedding=settings, search=SearchConfig(floor=False)))
    memory.indexer.embedder = None  # each test brings its own
    return memory


def remember(memory: Runebook, count: int) -> None:
    texts = {f"fact {number}": f"{TOPICS[number % 6]}, number {number}" for number in range(count)}
    handed_in(memory, write=[write("facts", topic=topic, content=text) for topic, text in texts.items()])
    memory.indexer.follow()


def rows(memory: Runebook, sql: str, *values: Any) -> list[Any]:
    return memory.indexer.catalog.connection().execute(sql, values).fetchall()


def stored(memory: Runebook, fingerprint: str) -> int:
    return vectors.count(memory.indexer.catalog.connection(), "user/default", fingerprint)


# Two models


def test_another_model_embeds_everything_and_going_back_embeds_nothing(
    memory: Runebook, loaded: BundledEmbedder
) -> None:
    remember(memory, 12)
    first, second = counting(loaded), halved(loaded)
    memory.indexer.embedder = first
    assert memory.indexer.embed_all() == (12, 12)
    memory.indexer.embedder = second
    assert memory.indexer.progress() == (0, 12)
    assert memory.indexer.embed_all() == (12, 12)
    first.texts = 0
    memory.indexer.embedder = first
    assert memory.indexer.progress() == (12, 12)
    assert memory.indexer.embed_waiting(OWN, time.monotonic() + 10) == 0
    assert first.texts == 0
    assert (stored(memory, first.fingerprint), stored(memory, second.fingerprint)) == (12, 12)


def test_two_processes_with_two_models_leave_each_other_alone(tmp_path: Path, loaded: BundledEmbedder) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        first, second = counting(loaded), halved(loaded)
        one.indexer.embedder, two.indexer.embedder = first, second
        one.indexer.progress()
        two.indexer.progress()
        for number in range(5):
            fact(one, f"T{number}", f"{TOPICS[number]} {number}")
            assert one.find(FindRequest(TOPICS[number])).hits[0].uri == f"{USER}/facts/T{number}.md"
            assert two.find(FindRequest(TOPICS[number])).hits[0].uri == f"{USER}/facts/T{number}.md"
        one.indexer.embed_all()
        two.indexer.embed_all()
        assert first.texts - 5 <= 2 * 5  # each query once; each passage once, or twice where both threads met
        assert (stored(one, first.fingerprint), stored(one, second.fingerprint)) == (5, 5)
        assert rows(one, "SELECT * FROM waiting") == []


def test_both_models_find_by_meaning_in_both_languages(tmp_path: Path, loaded: BundledEmbedder) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        one.indexer.embedder, two.indexer.embedder = counting(loaded), halved(loaded)
        remember(one, 6)
        for memory in (one, two):
            for query, number in (("谁养蜜蜂", {0, 1}), ("travelling overnight by railway", {2, 3})):
                found = {hit.uri for hit in memory.find(FindRequest(query, limit=2, rank="relevance")).hits}
                assert found & {f"{USER}/facts/fact {each}.md" for each in number}, query


def test_a_model_unused_for_a_month_is_no_longer_waited_for(memory: Runebook, loaded: BundledEmbedder) -> None:
    memory.indexer.embedder = halved(loaded)
    memory.indexer.progress()
    remember(memory, 3)
    now = time.time()
    with memory.indexer.catalog.writing() as connection:
        connection.execute("UPDATE models SET last_used = ?", (now - 31 * 86_400,))
        embedding_queue.register(connection, "new", now)
    assert rows(memory, "SELECT fingerprint FROM models") == [("new",)]
    assert rows(memory, "SELECT count(*) FROM waiting") == [(3,)]
    memory.indexer.embedder = other = halved(loaded)
    other.fingerprint = "later"
    assert memory.indexer.embed_all() == (3, 3)


# The queue


def test_what_waits_is_exactly_what_has_no_vector(memory: Runebook, loaded: BundledEmbedder) -> None:
    memory.indexer.embedder = model = counting(loaded)
    memory.indexer.progress()
    say = [{"role": "user", "content": f"{TOPICS[number % 6]} {number}"} for number in range(8)]
    for end in (1, 4, 5, 8):
        memory.commit(CommitRequest(messages=say[:end], session_id="s1"))
        memory.indexer.follow()
        assert missing(memory, model.fingerprint) == queued(memory)
        if end != 4:
            memory.indexer.embed_all()
            assert queued(memory) == set()
    remember(memory, 3)
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{USER}/facts/fact 1.md"}]}))
    memory.indexer.follow()
    assert missing(memory, model.fingerprint) == queued(memory)
    assert rows(memory, "SELECT count(*) FROM waiting WHERE passage_id NOT IN (SELECT id FROM passages)") == [(0,)]


def missing(memory: Runebook, fingerprint: str) -> set[int]:
    found = rows(
        memory,
        "SELECT id FROM passages p WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.uri = p.uri AND v.part = p.part "
        "AND v.content_sha256 = p.content_sha256 AND v.fingerprint = ?)",
        fingerprint,
    )
    return {row[0] for row in found}


def queued(memory: Runebook) -> set[int]:
    return {row[0] for row in rows(memory, "SELECT passage_id FROM waiting")}


def test_a_memory_written_again_with_the_same_text_does_not_wait(memory: Runebook, loaded: BundledEmbedder) -> None:
    memory.indexer.embedder = model = counting(loaded)
    remember(memory, 2)
    memory.indexer.embed_all()
    model.texts = 0
    write = {
        "memory_type": "facts",
        "fields": {"topic": "fact 0", "content": f"{TOPICS[0]}, number 0"},
        "salience": 1.0,
    }
    memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": write}]}))
    memory.indexer.follow()
    assert rows(memory, "SELECT salience FROM documents WHERE uri = ?", f"{USER}/facts/fact 0.md") == [(1.0,)]
    assert queued(memory) == set()


def test_a_text_that_changed_while_it_was_embedded_waits_again(memory: Runebook) -> None:
    catalog = memory.indexer.catalog
    with catalog.writing() as connection:
        embedding_queue.register(connection, "m", 1.0)
        embedding_queue.put(connection, 1, "user/default", f"{USER}/a.md", 0, "old", "sha-old")
        taken = embedding_queue.newest(connection, "m", 10)
        embedding_queue.remove(connection, f"{USER}/a.md")
        embedding_queue.put(connection, 1, "user/default", f"{USER}/a.md", 0, "new", "sha-new")
        assert [passage.id for passage in taken] == [1]  # the number is given to the new text again
        embedding_queue.settle(connection, taken, "m")
        assert [passage.text for passage in embedding_queue.newest(connection, "m", 10)] == ["new"]
        embedding_queue.settle(connection, embedding_queue.newest(connection, "m", 10), "m")
        assert embedding_queue.newest(connection, "m", 10) == []


def test_the_newest_passages_are_embedded_first(memory: Runebook) -> None:
    with memory.indexer.catalog.writing() as connection:
        embedding_queue.register(connection, "m", 1.0)
        for number in range(5):
            embedding_queue.put(connection, 1, "user/default", f"{USER}/{number}.md", 0, str(number), str(number))
        assert [passage.text for passage in embedding_queue.newest(connection, "m", 2)] == ["4", "3"]
        assert embedding_queue.backlog(connection, "m") == 5
        assert embedding_queue.backlog(connection, "m", 3) == 3
        assert embedding_queue.backlog(connection, "unknown") == 0


# A search while others wait


def test_a_search_makes_no_vectors_of_what_it_does_not_search(memory: Runebook, loaded: BundledEmbedder) -> None:
    memory.indexer.embedder = None
    remember(memory, 5)
    memory.indexer.follow(None)
    model = counting(loaded)
    queue = PassageEmbedding(memory.indexer.catalog, model)
    assert queue._turn.acquire(0)  # another thread is at it
    assert queue.before_search(["user/somebody"], time.monotonic() + 60) == 0
    assert queue.before_search(OWN, time.monotonic()) == 5
    queue._turn.release()
    assert model.texts == 0
    assert queue.before_search(OWN, time.monotonic() + 60) == 0
    assert model.texts == 5


def test_a_search_does_not_wait_until_somebody_elses_texts_are_indexed(
    memory: Runebook, loaded: BundledEmbedder
) -> None:
    memory.indexer.embedder = None
    remember(memory, 5)
    memory.indexer.follow(None)
    queue = PassageEmbedding(memory.indexer.catalog, counting(loaded))
    left = [queue.before_search(OWN, time.monotonic())]
    with memory.indexer.catalog.writing():
        search = threading.Thread(target=lambda: left.append(queue.before_search(OWN, time.monotonic() + 60)))
        search.start()
        search.join(20)  # SQLite would wait for half a minute
        assert left == [5, 5]
    assert queue.before_search(OWN, time.monotonic() + 60) == 0


def test_a_search_that_embeds_what_waits_looks_at_the_time_after_a_few_texts(
    memory: Runebook, loaded: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_queue, "_BEFORE_SEARCH_SECONDS", 60.0)
    memory.indexer.embedder = None
    said = [f"{number} " + "很长的一段话" * 240 for number in range(48)]
    handed_in(memory, write=[write("notes", title=text[:2], content=text) for text in said])
    memory.indexer.follow(None)
    model = counting(loaded)
    queue = PassageEmbedding(memory.indexer.catalog, model)
    queue._batch = 256
    assert queue.before_search(OWN, time.monotonic() + 60) == 0
    assert sum(model.sizes_chars) >= 48 * 1_440
    assert max(model.sizes_chars) <= 32_000


def test_what_others_wait_for_keeps_nobody_from_vectors_of_their_own(
    memory: Runebook, loaded: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_queue, "SMALL_BACKLOG", 10)
    monkeypatch.setattr(embedding_queue, "_LOOKED_THROUGH", 10)
    memory.indexer.embedder = None
    remember(memory, 5)
    with memory.indexer.catalog.writing() as connection:
        for number in range(30):
            place = f"viking://user/somebody/memories/notes/{number}.md"
            embedding_queue.put(connection, 1, "user/somebody", place, 0, str(number), str(number))
    model = counting(loaded)
    queue = PassageEmbedding(memory.indexer.catalog, model)
    assert queue._turn.acquire(0)  # the background is at what others wait for
    assert queue.before_search(OWN, time.monotonic() + 60) > 10  # not all is searched by meaning
    assert (model.texts, stored(memory, model.fingerprint)) == (5, 5)


def test_however_old_a_text_of_ones_own_is_a_search_makes_its_vector_where_little_waits(
    memory: Runebook, loaded: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_queue, "_LOOKED_THROUGH", 3)
    memory.indexer.embedder = None
    remember(memory, 10)
    memory.indexer.follow(None)
    queue = PassageEmbedding(memory.indexer.catalog, counting(loaded))
    assert queue.before_search(OWN, time.monotonic() + 60) == 0
    with memory.indexer.catalog.writing() as connection:  # all but the oldest have one
        connection.execute("DELETE FROM vectors WHERE part = 0")
        embedding_queue.await_missing(connection)
        connection.execute("DELETE FROM waiting WHERE passage_id > (SELECT min(passage_id) FROM waiting)")
    assert queue.before_search(OWN, time.monotonic()) == 1
    assert queue.before_search(OWN, time.monotonic() + 60) == 0


def test_each_space_is_looked_through_once_however_many_there_are(memory: Runebook) -> None:
    with memory.indexer.catalog.writing() as connection:
        embedding_queue.register(connection, "m", 1.0)
        for number in range(5):
            embedding_queue.put(connection, 1, "user/default", f"{USER}/{number}.md", 0, str(number), str(number))
        for spaces, waiting in (([], 0), (["user/default"] * 2, 5), ([*OWN, *map(str, range(600))], 5)):
            assert embedding_queue.backlog(connection, "m", spaces=spaces, crowded=True) == waiting
            assert len(embedding_queue.newest(connection, "m", 10, spaces, crowded=True)) == waiting
        assert [each.text for each in embedding_queue.newest(connection, "m", 2, OWN, crowded=True)] == ["4", "3"]


# A search while much waits


def test_a_search_answers_at_once_while_much_waits_and_says_how_far_it_is(
    memory: Runebook, loaded: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_queue, "SMALL_BACKLOG", 10)
    model = counting(loaded)
    model.allowed.clear()
    remember(memory, 30)
    memory.indexer.embedder = model
    try:
        assert memory.indexer.embed_waiting(OWN, time.monotonic() + 60)  # left to the background, which is held
        found = memory.find(FindRequest("a cracked violin", rank="relevance"))
        assert found.hits
        assert found.notes
        assert memory.indexer.progress() == Progress(0, 30)
    finally:
        model.allowed.set()
    assert soon(lambda: memory.indexer.progress() == Progress(30, 30))
    assert memory.find(FindRequest("a cracked violin", rank="relevance")).notes == ()


@pytest.mark.parametrize("mark", ["\x1d", "\x1e"])
def test_a_text_with_control_characters_has_a_vector(memory: Runebook, loaded: BundledEmbedder, mark: str) -> None:
    fact(memory, f"bees{mark}honey", "\n\n".join(f"{topic}. " * 60 for topic in TOPICS))
    said(memory, f"abc{mark}\n{mark}def", "a cracked violin", f"{mark}xyz{mark} {mark}")
    memory.indexer.follow()
    memory.indexer.embedder = counting(loaded)
    done, total = memory.indexer.embed_all()
    assert done == total > 4
    assert memory.find(FindRequest("a cracked violin", rank="relevance")).notes == ()


@pytest.mark.parametrize("text", ["abc\x1e\n\x1edef\x1da cracked violin", "bees\x1ehoney\nthe night train"])
def test_a_stored_passage_that_is_parted_where_it_should_not_be_has_a_vector(
    loaded: BundledEmbedder, text: str
) -> None:
    found = embed_passages(loaded, [text, f"\x1d{text}"])
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0)
    assert np.array_equal(found[0], found[1])


def test_a_search_answers_by_the_vectors_there_are_while_another_one_writes_the_index(
    memory: Runebook, loaded: BundledEmbedder
) -> None:
    remember(memory, 6)
    catalog = memory.indexer.catalog
    with sqlite3.connect(catalog.file.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        memory.indexer.embedder = counting(loaded)  # is not noted as in use yet
        found = memory.find(FindRequest("a cracked violin", rank="relevance"))
        other.execute("ROLLBACK")
    other.close()
    assert found.hits
    assert found.notes


def test_a_search_answers_by_the_vectors_there_are_where_the_disk_is_full(
    memory: Runebook, loaded: BundledEmbedder
) -> None:
    remember(memory, 60)
    connection = memory.indexer.catalog.connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    memory.indexer.embedder = counting(loaded)
    memory.indexer.stop()  # so that nobody else embeds them
    found = memory.find(FindRequest("a cracked violin", rank="relevance"))
    assert found.hits
    assert found.notes


def test_one_process_at_a_time_embeds_what_is_much(
    tmp_path: Path, loaded: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_queue, "SMALL_BACKLOG", 5)
    with opened(tmp_path) as one, opened(tmp_path) as two:
        remember(one, 20)
        held, free = counting(loaded), counting(loaded)
        held.allowed.clear()
        one.indexer.embedder = held
        first = threading.Thread(target=one.indexer._embedding.in_background, args=(threading.Event(), lambda: None))
        try:
            first.start()
            assert soon(one.indexer._embedding._turn.locked)
            two.indexer.embedder = free
            two.indexer._embedding.in_background(threading.Event(), lambda: None)
            assert free.texts == 0
        finally:
            held.allowed.set()
            first.join()
        # the process that embeds may do so in its own background thread
        assert soon(lambda: two.indexer.progress() == (20, 20))


def test_embedding_everything_reports_its_progress(memory: Runebook, loaded: BundledEmbedder) -> None:
    remember(memory, 70)
    held = counting(loaded)
    held.allowed.clear()  # neither this thread nor the background embeds before the first report
    memory.indexer.embedder = held
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        held.allowed.set()

    assert memory.indexer.embed_all(report) == (70, 70)
    assert seen[0] == (0, 70)
    assert seen[-1] == (70, 70)
    assert seen == sorted(seen)


def test_the_command_embeds_all_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(tmp_path) as memory:
        remember(memory, 3)
    assert main(["embed", "--home", str(tmp_path), "--json"]) == 0
    out, _ = capsys.readouterr()
    assert json.loads(out) == {"done": 3, "total": 3, "model": BundledEmbedder.fingerprint}
    assert main(["embed", "--home", str(tmp_path), "--set", "embedding.provider=none"]) == 1
    assert "embedding.provider" in capsys.readouterr().err


# Loading


def test_a_load_that_failed_is_tried_again_after_a_pause() -> None:
    tries: list[int] = []

    def load() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise EmbeddingFailed("no network.", hint="Connect.")
        return "model"

    patient: BackgroundModel[str] = BackgroundModel(load, retry_seconds=3_600)
    with pytest.raises(EmbeddingFailed, match="no network"):
        patient.get()
    assert not patient.ready(5.0)
    assert patient.failure is not None
    assert len(tries) == 1
    eager: BackgroundModel[str] = BackgroundModel(load, retry_seconds=0.0)
    assert not eager.ready(5.0)
    assert eager.ready(5.0)
    assert eager.failure is None
    assert eager.get() == "model"


def test_many_threads_load_once() -> None:
    loads: list[int] = []
    release = threading.Event()

    def load() -> object:
        loads.append(1)
        release.wait(10)
        return object()

    model: BackgroundModel[object] = BackgroundModel(load)
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(model.get())) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert not model.ready(0.0)
    release.set()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(set(map(id, got))) == 1


# Scale


def test_the_scale_of_the_bundled_model_is_measured_as_it_was_chosen(loaded: BundledEmbedder) -> None:
    measured = measure_scale(loaded.embed)
    assert measured.zero == pytest.approx(loaded.scale.zero, abs=0.02)
    assert measured.near == pytest.approx(loaded.scale.near, abs=0.05)
    assert [scale.trust for scale in measured.languages.values()] == [1.0, 1.0]


def test_a_model_whose_unrelated_texts_score_high_gets_a_high_zero(loaded: BundledEmbedder) -> None:
    def narrow(texts: Sequence[str]) -> Any:
        """The bundled model's vectors beside a constant one: every cosine is .7 + .3 of what it was."""
        found = loaded.embed(texts)
        constant = np.full((len(texts), 1), np.sqrt(0.7), dtype=np.float32)
        return np.hstack([constant, np.sqrt(0.3) * found])

    measured = measure_scale(narrow)
    assert measured.zero == pytest.approx(0.67, abs=0.03)
    assert measured.near == pytest.approx(0.88, abs=0.03)
    assert measured.trust == 1.0


def test_a_model_of_one_language_is_measured_in_that_language(loaded: BundledEmbedder) -> None:
    def english_only(texts: Sequence[str]) -> Any:
        found = loaded.embed(texts).copy()
        foreign = [index for index, text in enumerate(texts) if not text.isascii()]
        found[foreign] = found[foreign[0]] if foreign else 0.0
        return found

    measured = measure_scale(english_only)
    assert measured.zero == pytest.approx(0.0, abs=0.02)
    assert measured.of("Where does my sister live?").trust == 1.0
    assert measured.of("我妹妹住在哪里？").trust == 0.0
