"""The facade: one open store for many threads and processes, that no file on disk can lock anybody out of."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import EmbeddingConfig, IndexConfig
from memory_core.core.errors import ConfigInvalid, InvalidInput, TooLarge
from memory_core.core.index.follower import Behind
from memory_core.core.index.indexer import Indexer
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest
from memory_core.core.memory.results import Action, ChangeSet, Status
from memory_core.core.store.local import Plan, Store, large_turn
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook, open_memory
from tests.fork_server import starter
from tests.stores import fact, own_type, remember, trailer, words_only
from tests.waiting import PATIENCE_SECONDS, at_once, soon

USER = "viking://user/default/memories"
TOOL = "viking://agent/default/memories/tools/web_search.md"


def kinds(memory: Runebook) -> list[str]:
    return [row.kind for row in memory.store.ledger.history()]


def test_a_commit_takes_exactly_one_kind_of_content(memory: Runebook) -> None:
    operations = {"delete_operations": [{"uri": f"{USER}/profile.md"}]}
    messages = [{"role": "user", "content": "hi"}]
    for arguments in (
        {},
        {"memory_content": "x", "messages": messages},
        {"fields": {"content": "x"}, "operations": operations},
        {"messages": messages, "operations": operations},
    ):
        with pytest.raises(InvalidInput, match="exactly one"):
            memory.commit(CommitRequest(**arguments))


def test_closing_twice_is_harmless_and_everything_is_there_after_reopening(tmp_path: Path) -> None:
    memory = open_memory(words_only(tmp_path))
    uri = fact(memory, "T", "斑马 zebra")
    memory.close()
    memory.close()
    with open_memory(words_only(tmp_path)) as reopened:
        assert "斑马" in reopened.read(ReadRequest(uri)).content
        assert [hit.uri for hit in reopened.find(FindRequest("斑马")).memories] == [uri]


@pytest.mark.parametrize(
    "wrong",
    [
        {"embedding": EmbeddingConfig(provider="sentence-transformers", model="")},
        {"index": IndexConfig(mode="http", url="nonsense")},
        {"prompt_dirs": ("prompts",)},
    ],
    ids=["model", "address", "template"],
)
def test_a_store_that_a_wrong_setting_keeps_shut_leaves_nothing_open(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "final.md").write_text("{no_such_variable}", encoding="utf-8")
    if "prompt_dirs" in wrong:
        wrong = {"prompt_dirs": (tmp_path / "prompts",)}
    before = threading.enumerate()
    with pytest.raises(ConfigInvalid):
        open_memory(words_only(tmp_path / "home").model_copy(update=wrong))
    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


def test_increments_of_many_threads_are_all_counted(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as one, open_memory(words_only(tmp_path)) as two:

        def call(memory: Runebook) -> None:
            for _ in range(10):
                remember(memory, None, "tools", tool_name="web_search", total_calls=1)

        at_once(call, one, two, one, two)
        assert trailer(one, TOOL)["total_calls"] == 40
        assert trailer(one, TOOL)["version"] == 40


def test_increments_of_several_processes_are_all_counted(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from memory_core.core.config import Config, EmbeddingConfig
        from memory_core.core.memory.requests import CommitRequest
        from memory_core.runebook import open_memory
        with open_memory(Config(home=Path(sys.argv[1]), embedding=EmbeddingConfig(provider="none"))) as memory:
            for _ in range(10):
                memory.commit(CommitRequest(memory_type="tools", fields={"tool_name": "web_search", "total_calls": 1}))
        """
    )
    running = [starter().script(script, tmp_path) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    with open_memory(words_only(tmp_path)) as memory:
        assert trailer(memory, TOOL)["total_calls"] == 20


def test_twins_written_by_two_stores_at_once_are_one_memory(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as one, open_memory(words_only(tmp_path)) as two:
        start = threading.Barrier(2)

        def write(writer: tuple[Runebook, str]) -> None:
            start.wait()
            fact(*writer, "x")

        at_once(write, (one, "Office Hours"), (two, "ｏｆｆｉｃｅ  hours"))
        assert len(one.ls(ListRequest(f"{USER}/facts")).entries) == 1


def test_what_a_search_recalls_counts_as_used(tmp_path: Path) -> None:
    at = datetime(2026, 6, 1, tzinfo=UTC)
    with open_memory(words_only(tmp_path)) as memory:
        uri = fact(memory, "T", "zebra", now=at - timedelta(days=30))
        stale = memory.find(FindRequest("zebra", now=at)).hits[0]
        memory.find(FindRequest("zebra", now=at))
    with open_memory(words_only(tmp_path)) as memory:
        usage = memory.store.ledger.usage_table.usage([uri])[uri]
        assert (usage.access_count, usage.last_accessed_at) == (2, at)
        fresh = memory.find(FindRequest("zebra", now=at)).hits[0]
        assert stale.why["recency"] < 0.3
        assert fresh.why["recency"] == 1.0


def test_a_hand_edit_is_a_commit_of_its_own_before_anything_builds_on_it(memory: Runebook, tmp_path: Path) -> None:
    uri = fact(memory, "T", "one")
    path = tmp_path / "user/default/memories/facts/T.md"
    edited = path.read_text(encoding="utf-8").replace("one", "by hand 手改")
    path.write_text(edited, encoding="utf-8")
    fact(memory, "T", "three")
    assert kinds(memory) == ["commit", "external", "commit"]
    newest, external, _ = memory.store.ledger.history()
    (change,) = [row for row in memory.store.ledger.changes_of([newest.seq]) if row.memory_type]
    assert change.before == edited
    assert memory.store.ledger.changes_of([external.seq])[0].after == edited
    assert str(change.uri) == uri


def test_a_file_where_a_folder_belongs_delays_one_commit_and_keeps_nobody_out(tmp_path: Path) -> None:
    blocker = tmp_path / "user/default/memories/facts"
    blocker.parent.mkdir(parents=True)
    blocker.write_text("a file in the way", encoding="utf-8")
    with open_memory(words_only(tmp_path)) as memory:
        receipt = memory.commit(CommitRequest("kept 斑马", memory_type="facts", fields={"topic": "T"}))
        assert receipt.status is Status.COMMITTED
        assert any("ledger" in note for note in receipt.notes)
        assert memory.commit(CommitRequest("another")).status is Status.COMMITTED
    with open_memory(words_only(tmp_path)) as memory:
        assert memory.commit(CommitRequest("yet another")).status is Status.COMMITTED
        assert memory.find(FindRequest("another")).total == 2
        blocker.unlink()
        remember(memory, "the way is free")
        assert "斑马" in memory.read(ReadRequest(f"{USER}/facts/T.md")).content


def test_a_folder_named_like_a_memory_makes_room_for_it_under_another_name(memory: Runebook, tmp_path: Path) -> None:
    (tmp_path / "user/default/memories/facts/T.md").mkdir(parents=True)
    uri = fact(memory, "T", "x")
    assert uri != f"{USER}/facts/T.md"
    assert fact(memory, "T", "y") == uri


def test_a_broken_type_of_a_user_is_reported_and_the_store_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "bad.yaml").write_text("name: [", encoding="utf-8")
    with open_memory(words_only(tmp_path / "home", schema_dirs=(schemas,))) as memory:
        assert memory.registry.problems
        assert memory.commit(CommitRequest("works")).status is Status.COMMITTED
    assert "bad.yaml" in caplog.text


def test_files_of_a_type_that_is_gone_stay_readable_and_findable(tmp_path: Path) -> None:
    lines = "filename_template: '{dish}.md'\nfields: [{name: dish}, {name: content}]\n"
    schemas = own_type(tmp_path / "schemas", "recipes", lines)
    with open_memory(words_only(tmp_path / "home", schema_dirs=(schemas,))) as memory:
        remember(memory, "豆腐 tofu", "recipes", dish="Mapo")
    uri = f"{USER}/recipes/Mapo.md"
    with open_memory(words_only(tmp_path / "home")) as memory:
        assert [hit.uri for hit in memory.find(FindRequest("豆腐")).memories] == [uri]
        assert "tofu" in memory.read(ReadRequest(uri)).content
        edit = {"uri": uri, "patches": {"content": "x"}}
        receipt = memory.commit(CommitRequest(operations={"edit_operations": [edit]}))
        assert receipt.results[0].action is Action.REJECTED
        removed = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}))
        assert removed.status is Status.COMMITTED


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        ("Server A has 16 GB of memory.", "Server B has 16 GB of memory.", "The cat sleeps on the sofa."),
        ("甲服务器的内存是十六GB。", "乙服务器的内存是十六GB。", "猫在沙发上睡觉。"),
    ],
)
def test_a_receipt_names_the_look_alike_also_without_a_model(
    tmp_path: Path, first: str, second: str, other: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        kept = memory.commit(CommitRequest(first))
        assert memory.commit(CommitRequest(other)).similar == ()
        receipt = memory.commit(CommitRequest(second))
        assert [near.uri for near in receipt.similar] == list(kept.changed_uris)
        assert memory.read(ReadRequest(kept.changed_uris[0])).content.startswith(first)


def test_large_commits_of_a_user_come_one_by_one_and_hold_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, talk = (
        CommitRequest("A long story. " * 3_000),
        CommitRequest(messages=[{"role": "user", "content": "x" * 300_000}]),
    )
    with open_memory(words_only(tmp_path)) as anna, open_memory(words_only(tmp_path, user_space="bob")) as bob:
        planned_ahead: list[str] = []
        rehearse = Store._rehearse

        def noted(store: Store, plan: Plan) -> ChangeSet:
            planned_ahead.append(store.files.root.name)
            return rehearse(store, plan)

        monkeypatch.setattr(Store, "_rehearse", noted)
        kept = bob.commit(CommitRequest("The harbour opens at six.")).commit_id
        threads = [threading.Thread(target=anna.commit, args=(request,)) for request in (long, talk, long)]
        with anna.store.exclusive():
            for thread in threads:
                thread.start()
            assert soon(lambda: len(planned_ahead) == 1)
            time.sleep(0.2)
            assert len(planned_ahead) == 1  # the others wait for their turn, not for the store
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        with large_turn("default"):
            waiting = threading.Thread(target=anna.commit, args=(talk,))
            waiting.start()
            assert bob.run(UNDO, UndoRequest(kept)).status is Status.COMMITTED
            assert bob.commit(talk).commit_id
            assert waiting.is_alive()
        waiting.join(PATIENCE_SECONDS)
    assert len(planned_ahead) == 6


def test_a_conversation_waits_for_the_index_of_its_user_and_not_for_that_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = CommitRequest(messages=[{"role": "user", "content": "x" * 200_000}])
    asked: list[str] = []

    def is_behind(_indexer: Indexer, *_args: Any, spaces: Sequence[str] = ()) -> Behind:
        asked.extend(spaces)
        return Behind(0, 1, "changes")

    monkeypatch.setattr("memory_core.core.index.indexer._CHARS_A_SECOND", 1_000_000)
    with open_memory(words_only(tmp_path)) as anna, open_memory(words_only(tmp_path, user_space="bob")) as bob:
        for memory in (anna, bob):
            memory.indexer.follow(None)
            monkeypatch.setattr(memory.indexer._follower, "_slice", lambda _spaces: None)  # nothing is indexed any more
        monkeypatch.setattr(Indexer, "follow", is_behind)
        for memory in (anna, bob):
            memory.commit(talk)
        assert not [space for space in asked if space.startswith("session/")]
        anna.commit(CommitRequest(messages=[{"role": "user", "content": "y" * 200_000}]))
        assert "session/default" in asked
        monkeypatch.undo()


def test_what_takes_too_long_to_plan_is_refused_before_anybody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "A long story about the old harbour. " * 1_000
    with open_memory(words_only(tmp_path)) as memory:
        kept = memory.commit(CommitRequest("The harbour opens at six.")).commit_id
        monkeypatch.setattr("memory_core.core.store.local._PLAN_SECONDS", 0.0)
        monkeypatch.setattr(memory.store._lock, "held", lambda *_args: pytest.fail("the lock was taken"))
        for request in (CommitRequest(long), CommitRequest(messages=[{"role": "user", "content": long}])):
            with pytest.raises(TooLarge, match="others would wait"):
                memory.commit(request)
        with pytest.raises(TooLarge):
            memory.run(UNDO, UndoRequest(kept))
        monkeypatch.undo()
        assert memory.commit(CommitRequest("The harbour closes at nine.")).status == "committed"
        assert len(memory.find(FindRequest("harbour")).memories) == 2
