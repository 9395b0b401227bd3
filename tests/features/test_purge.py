"""Purging: no byte of the text is left below the folder, and the store stays sound."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput, NotFound, StorageFailed
from memory_core.core.index.indexer import Indexer
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.history import history_of
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import holding, log_of, note

NOTES = "viking://user/default/memories/notes"
SECRETS = ("杨树街四十二号的保险箱", "the swordfish opens the vault", "Zweitausend Kraniche")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(Config(home=tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("secret", SECRETS)
def test_no_file_below_the_folder_holds_the_text_or_the_name_afterwards(memory: Runebook, secret: str) -> None:
    root = memory.config.root
    note(memory, "kept", "Something ordinary.")
    note(memory, secret, f"I say: {secret}.")
    note(memory, secret, f"I say again: {secret}!")
    memory.find(FindRequest(secret))
    memory.read(ReadRequest(f"{NOTES}/{secret}.md"))
    memory.indexer.embed_all()
    assert holding(root, secret)
    receipt = memory.run(PURGE, PurgeRequest(f"{NOTES}/{secret}.md"))
    assert holding(root, secret) == []
    assert not [note for note in receipt.notes if "still hold" in note]
    (result,) = receipt.results
    assert result.action is Action.DELETED
    assert "Something ordinary." in memory.read(ReadRequest(f"{NOTES}/kept.md")).content
    assert [hit.uri for hit in memory.find(FindRequest("something ordinary")).memories] == [f"{NOTES}/kept.md"]
    page = memory.read(ReadRequest(result.uri.replace("viking://", "viking://history/"))).content
    assert "[purged]" in page


def test_what_the_index_learns_late_is_erased_too(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Indexer.follow, "__defaults__", (0.0, None, ()))  # as on a busy machine: others wait no longer
    note(memory, "vault", SECRETS[1])
    memory.run(PURGE, PurgeRequest(f"{NOTES}/vault.md"))
    assert holding(memory.config.root, SECRETS[1]) == []
    assert memory.indexer.catalog.position().seq == memory.store.ledger.newest_seq()


def test_history_undo_and_reopening_stay_sound_and_say_purged(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        first = note(memory, "vault", SECRETS[1])
        receipt = memory.run(PURGE, PurgeRequest(f"{NOTES}/vault.md"))
        tombstone = receipt.results[0].uri
        refused = memory.run(UNDO, UndoRequest(first.commit_id))
        assert "purged" in str(refused.results[0].reason)
        with pytest.raises(NotFound, match="purged"):
            history_of(memory).compare(tombstone, later=first.commit_id)
        again = note(memory, "vault", "A new beginning.")
        assert again.results[0].action is Action.CREATED
    with open_memory(Config(home=tmp_path)) as memory:
        assert memory.store.adopt() == 0
        assert "A new beginning." in memory.read(ReadRequest(f"{NOTES}/vault.md")).content
        assert [hit.uri for hit in memory.find(FindRequest("beginning")).memories] == [f"{NOTES}/vault.md"]
        assert history_of(memory).commits()


def test_a_conversation_is_erased_with_its_place_in_the_queue(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=[{"role": "user", "content": f"By the way, {SECRETS[1]}"}], session_id="s1"))
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "还有一句话。"}], session_id="s1"))
    memory.run(PURGE, PurgeRequest("viking://session/default/s1"))
    assert holding(memory.config.root, SECRETS[1]) == []
    assert holding(memory.config.root, "还有一句话") == []
    assert memory.store.ledger.extractions.get(log_of()) is None


def test_a_deleted_memory_is_purged_from_history_alone(memory: Runebook) -> None:
    note(memory, "gone", SECRETS[1])
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{NOTES}/gone.md"}]}))
    assert holding(memory.config.root, SECRETS[1])
    memory.run(PURGE, PurgeRequest(f"{NOTES}/gone.md"))
    assert holding(memory.config.root, SECRETS[1]) == []


def test_a_commit_is_purged_and_the_rest_of_its_file_stays(memory: Runebook) -> None:
    note(memory, "list", "一：牛奶\n")
    bad = note(memory, "list", f"一：牛奶\n二：{SECRETS[0]}\n")
    good = note(memory, "list", f"一：牛奶\n二：{SECRETS[0]}\n三：面包\n")
    receipt = memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
    assert memory.read(ReadRequest(f"{NOTES}/list.md")).content.startswith("一：牛奶\n三：面包\n")
    assert holding(memory.config.root, SECRETS[0]) == []
    assert [hit.uri for hit in memory.find(FindRequest("牛奶")).memories] == [f"{NOTES}/list.md"]
    assert receipt.results[0].uri == f"{NOTES}/list.md"
    with pytest.raises(NotFound, match="purged"):
        history_of(memory).compare(f"{NOTES}/list.md", later=good.commit_id)
    undo = history_of(memory).commits()[0]
    refused = memory.run(UNDO, UndoRequest(undo.commit_id))
    assert "purged" in str(refused.results[0].reason)


def test_what_a_commit_brought_and_another_deleted_is_purged_with_it(memory: Runebook) -> None:
    bad = note(memory, "gone", SECRETS[1])
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{NOTES}/gone.md"}]}))
    for _ in range(2):  # the second time as after one that was stopped at its end
        receipt = memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
        assert [result.action for result in receipt.results] == [Action.DELETED]
        assert holding(memory.config.root, SECRETS[1]) == []


def test_what_was_put_back_by_hand_already_stays_as_it_is(memory: Runebook) -> None:
    note(memory, "list", "one: milk\n")
    path = memory.config.root / "user/default/memories/notes/list.md"
    plain = path.read_text("utf-8")
    bad = note(memory, "list", f"one: milk\ntwo: {SECRETS[1]}\n")
    note(memory, "list", f"one: milk\ntwo: {SECRETS[1]}\nthree: bread\n")
    path.write_text(plain, "utf-8", newline="\n")
    memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
    assert holding(memory.config.root, SECRETS[1]) == []
    assert path.read_text("utf-8") == plain
    assert memory.store.ledger.text_at(MemoryUri.parse(f"{NOTES}/list.md")) == plain
    assert [hit.uri for hit in memory.find(FindRequest("milk")).memories] == [f"{NOTES}/list.md"]


def test_a_commit_that_was_undone_in_part_is_not_purged_while_a_file_keeps_its_words(memory: Runebook) -> None:
    fields = [{"title": title, "content": f"{title}: {SECRETS[1]}"} for title in ("one", "two")]
    writes = [{"memory_data": {"memory_type": "notes", "fields": each}} for each in fields]
    bad = memory.commit(CommitRequest(operations={"write_operations": writes}))
    note(memory, "two", f"two: {SECRETS[1]}\nand more")
    undone = memory.run(UNDO, UndoRequest(bad.commit_id))
    assert [result.action for result in undone.results] == [Action.DELETED, Action.REJECTED]
    with pytest.raises(InvalidInput, match="two\\.md cannot go back"):
        memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
    two = MemoryUri.parse(f"{NOTES}/two.md")
    assert SECRETS[1] in (memory.store.ledger.text_at(two) or "")
    memory.run(PURGE, PurgeRequest(str(two)))
    memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
    assert holding(memory.config.root, SECRETS[1]) == []


def test_no_file_is_read_for_words_where_none_are_looked_for(memory: Runebook) -> None:
    note(memory, "list", "a\n")
    bad = note(memory, "list", "a\nb\n")
    with (memory.config.root / "large.bin").open("wb") as large:
        large.truncate(64 << 20)
    tracemalloc.start()
    try:
        memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_copies_elsewhere_are_named(memory: Runebook) -> None:
    note(memory, "one", SECRETS[1])
    memory.commit(CommitRequest(f"He said: {SECRETS[1]}", memory_type="preferences", fields={"topic": "quote"}))
    receipt = memory.run(PURGE, PurgeRequest(f"{NOTES}/one.md"))
    assert "user/default/memories/preferences/quote.md" in " ".join(receipt.notes)


def test_a_page_that_somebody_wrote_and_may_still_name_it_is_named(memory: Runebook) -> None:
    note(memory, "one", SECRETS[1])
    memory.commit(CommitRequest("Keeps a vault.", memory_type="rolling_summary"))
    receipt = memory.run(PURGE, PurgeRequest(f"{NOTES}/one.md"))
    assert "rolling_summary.md was written by hand and may still name it" in " ".join(receipt.notes)


def test_a_whole_space_or_another_users_cannot_be_purged(memory: Runebook) -> None:
    note(memory, "a", "A.")
    with pytest.raises(InvalidInput):
        memory.run(PURGE, PurgeRequest("viking://user/default"))
    with pytest.raises(NotFound):
        memory.view("bob", "bob").run(PURGE, PurgeRequest(f"{NOTES}/a.md"))
    with pytest.raises(NotFound):
        memory.run(PURGE, PurgeRequest(f"{NOTES}/never.md"))


def test_what_another_process_writes_while_a_purge_runs_is_not_erased_with_it(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = MemoryUri.parse(f"{NOTES}/密码 vault.md")
    note(memory, "密码 vault", "the old words")
    flush = memory.store.usage.flush
    with open_memory(Config(home=memory.config.root)) as other:

        def flush_while_another_writes() -> None:
            monkeypatch.undo()
            flush()
            assert note(other, "密码 vault", "written anew 重新写的").status == "committed"

        monkeypatch.setattr(memory.store.usage, "flush", flush_while_another_writes)
        with pytest.raises(StorageFailed, match="there again"):
            memory.run(PURGE, PurgeRequest(str(uri)))
        assert "written anew 重新写的" in (other.store.ledger.text_at(uri, other.store.ledger.newest_seq()) or "")
        assert "written anew 重新写的" in memory.read(ReadRequest(str(uri))).content
        memory.run(PURGE, PurgeRequest(str(uri)))
    assert holding(memory.config.root, "written anew") == []


def test_a_purge_leaves_nothing_where_chroma_holds_the_vectors(tmp_path: Path) -> None:
    settings = Config.model_validate({"home": tmp_path, "index": {"mode": "chroma"}})
    with open_memory(settings) as memory:
        for number in range(5):
            note(memory, f"shelf {number}", f"Shelf {number} holds lamps.")
        note(memory, "杨树街", SECRETS[0])
        memory.indexer.embed_all()
        assert memory.find(FindRequest(SECRETS[0])).memories[0].uri == f"{NOTES}/杨树街.md"
        memory.run(PURGE, PurgeRequest(f"{NOTES}/杨树街.md"))
        assert holding(tmp_path, SECRETS[0]) == []
        assert f"{NOTES}/杨树街.md" not in [hit.uri for hit in memory.find(FindRequest(SECRETS[0])).memories]
        assert memory.find(FindRequest("lamps")).memories
        bad = note(memory, "shelf 1", f"Shelf 1 holds lamps.\n{SECRETS[1]}\n")
        memory.indexer.embed_all()
        memory.run(PURGE, PurgeRequest(commit=bad.commit_id))
        memory.indexer.embed_all()
        assert holding(tmp_path, SECRETS[1]) == []
        assert f"{NOTES}/shelf 1.md" in [hit.uri for hit in memory.find(FindRequest("shelf 1 holds lamps")).memories]
