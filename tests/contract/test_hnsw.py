"""A space that became large has an HNSW index of its own, and answers as before."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from memory_core.core.config import EmbeddingConfig, IndexConfig
from memory_core.core.errors import EmbeddingFailed
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook
from tests.contract.conftest import Place
from tests.waiting import soon

psycopg = pytest.importorskip("psycopg")
from memory_core.core.postgres.hnsw import HnswIndexes  # noqa: E402 - what it imports may be missing

THINGS = ("tea", "boats", "maps", "dogs", "chess", "bread", "rivers", "trains", "clocks", "songs", "gloves", "roses")
PLACES = ("the harbour", "a mountain hut", "the old library", "my grandmother's kitchen")
QUESTIONS = ("Which drink do I like at the port?", "What is played beside books?", "warm things for hands in the Alps")
SETTINGS: dict[str, Any] = {"embedding": EmbeddingConfig(wait_seconds=60.0), "index": IndexConfig(exact_below=40)}


def filled(memory: Runebook) -> None:
    notes = [(thing, place) for thing in THINGS for place in PLACES]
    operations = [
        {
            "memory_data": {
                "memory_type": "notes",
                "fields": {"title": f"{thing} {place}", "content": f"{thing}, {place}"},
            }
        }
        for thing, place in notes
    ]
    assert memory.commit(CommitRequest(operations={"write_operations": operations})).status == "committed"
    memory.indexer.embed_all()


def backend(memory: Runebook) -> str:
    """How the user's space is searched, after the background had its turn."""
    fingerprint = memory.indexer.embedder.fingerprint if memory.indexer.embedder else ""
    space = f"user/{memory.config.user_space}"
    memory.indexer.vectors.keep_up(memory.indexer.catalog.connection(), space, fingerprint)
    return memory.indexer.vectors.status(memory.indexer.catalog.connection(), space, fingerprint).backend


def indexed(memory: Runebook) -> None:
    assert soon(lambda: backend(memory) == "hnsw")


def answers(memory: Runebook) -> list[list[tuple[str, float]]]:
    return [[(hit.uri, hit.score) for hit in memory.find(FindRequest(each)).memories] for each in QUESTIONS]


def names(url: str) -> list[str]:
    with psycopg.connect(url) as admin:
        rows = admin.execute(
            "SELECT relname FROM pg_class JOIN pg_index ON oid = indexrelid WHERE relname LIKE 'vectors_near%' "
            "AND indisvalid ORDER BY 1"
        ).fetchall()
    return [name for (name,) in rows]


def test_a_large_space_answers_from_its_index_as_it_did_without(rows: Place) -> None:
    memory, other = rows.open(**SETTINGS), rows.open(**SETTINGS)
    exact = rows.open(embedding=SETTINGS["embedding"])
    filled(memory)
    before = answers(exact)
    indexed(memory)
    indexed(other)  # it finds that of the first
    (name,) = names(rows.url)
    assert answers(memory) == answers(other) == before
    memory.commit(CommitRequest("My favourite beverage is oolong.", memory_type="notes", fields={"title": "oolong"}))
    memory.indexer.embed_all()
    uris = [hit.uri for hit in other.find(FindRequest("Which drink do I like?")).memories]
    assert "viking://user/default/memories/notes/oolong.md" in uris
    bob = memory.view("bob")
    filled(bob)
    indexed(bob)
    assert len(names(rows.url)) == 2
    assert {uri.split("/")[3] for answer in answers(bob) for uri, _ in answer} == {"bob"}
    assert plan(rows.url, memory).count(name) == 1


def plan(url: str, memory: Runebook) -> str:
    """How PostgreSQL reads the nearest of many: few rows are cheaper to sort than to look up, so sorting is off."""
    embedder = memory.indexer.embedder
    assert embedder is not None
    vector = embedder.embed(["tea"], query=True)[0]
    statement = memory.indexer.vectors._indexes.nearest("user/default", embedder.fingerprint, len(vector))  # type: ignore[attr-defined]
    with psycopg.connect(url) as admin:
        admin.execute("SET enable_sort = off; SET search_path = runebook_index, public")
        values = (f"[{','.join(map(str, vector))}]", 10)
        return str(admin.execute(f"EXPLAIN {statement}".replace("%s AS", "%s::halfvec AS"), values).fetchall())


def test_an_index_whose_server_ended_within_is_made_anew(rows: Place) -> None:
    memory = rows.open(**SETTINGS)
    filled(memory)
    indexed(memory)
    (name,) = names(rows.url)
    rows.close()
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", (f"runebook_index.{name}",)
        )
    assert names(rows.url) == []
    indexed(rows.open(**SETTINGS))
    assert names(rows.url) == [name]


def test_where_none_may_be_made_all_rows_are_scanned(rows: Place, caplog: pytest.LogCaptureFixture) -> None:
    memory = rows.open(**SETTINGS)
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE insufficient_privilege; END'"
        )
        admin.execute(
            "CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION refuse()"
        )
    filled(memory)
    refused = "no HNSW index of user/default"
    assert soon(lambda: backend(memory) != "exact" or refused in caplog.text)
    assert refused in caplog.text
    assert "db migrate" not in caplog.text  # the schema is current: that would change nothing
    assert backend(memory) == "exact"
    assert all(answers(memory))


def test_closing_gives_up_an_index_whatever_statement_the_first_cancel_meets(
    rows: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.open(embedding=SETTINGS["embedding"])
    began, ends = threading.Event(), list[str]()

    def made(_self: HnswIndexes, raw: Any, *_place: Any) -> bool:
        for _ in range(2):  # the first cancel does not reach what is second
            began.set()
            try:
                raw.execute("SELECT pg_sleep(5)")
                ends.append("done")
            except psycopg.errors.QueryCanceled:
                ends.append("given up")
        return False

    monkeypatch.setattr(HnswIndexes, "_is_made", made)
    indexes = HnswIndexes(rows.url, "default")
    indexes.want("user/default", "model", 3)
    assert began.wait(60)
    indexes.close()
    assert ends == ["given up", "given up"]


def test_vectors_of_another_size_are_refused_with_what_to_do(rows: Place) -> None:
    memory = rows.open(embedding=SETTINGS["embedding"])
    filled(memory)
    embedder: Any = memory.indexer.embedder
    real = embedder.embed
    embedder.embed = lambda texts, *, query=False: real(texts, query=query)[:, :100]
    with pytest.raises(EmbeddingFailed, match="of another size than those that are stored") as refused:
        memory.find(FindRequest("Is there anything warm to drink?"))
    assert "--reembed" in str(refused.value.hint)
    embedder.embed = real
    assert memory.find(FindRequest("Is there something warm to drink?")).memories
