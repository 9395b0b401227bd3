"""Hot memories: those used most, counted hourly, as true as a search, and never another project's secret."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.config import SearchConfig
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.search.recalls import HotMemories
from memory_core.features.recall_trail import HOT, HotRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import fact, replaced, words_only

USER = "viking://user/default/memories"
HOUR = 3_600.0
AT = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def use(memory: Runebook, uri: str, times: int = 1) -> None:
    for number in range(times):
        memory.store.usage.read(uri, AT + timedelta(seconds=number))
    memory.store.usage.flush()


def hottest(hot: HotMemories, **seen: ProjectScope) -> list[str]:
    return [memory.uri for memory in hot.hot(None, **seen)]


def opened(memory: Runebook, limit: int, clock: Clock) -> HotMemories:
    return HotMemories(memory.store.ledger.usage_table, memory.indexer, memory.spaces, limit, HOUR, clock)


def filled(memory: Runebook, count: int) -> list[str]:
    """Memories, most used first."""
    uris = [fact(memory, f"茶 {number}", f"一杯茶 number {number}") for number in range(count)]
    for number, uri in enumerate(uris):
        use(memory, uri, count - number + 1)
    return uris


def test_the_most_used_come_first_with_what_they_say(memory: Runebook) -> None:
    tea, code = fact(memory, "茶", "她喝绿茶。"), fact(memory, "Code style", "Tabs, never spaces.")
    use(memory, tea)
    use(memory, code, 3)
    first, second = memory.run(HOT, HotRequest())
    assert (first.uri, first.access_count, first.last_accessed_at) == (code, 3, AT + timedelta(seconds=2))
    assert (second.uri, second.memory_type, second.abstract) == (tea, "facts", "她喝绿茶。")
    assert [found.uri for found in memory.run(HOT, HotRequest(1))] == [code]


def test_at_most_twenty_are_hot_unless_set_otherwise(memory: Runebook, tmp_path: Path) -> None:
    uris = filled(memory, 22)
    assert [found.uri for found in memory.run(HOT, HotRequest())] == uris[:20]
    memory.close()
    with open_memory(words_only(tmp_path, search=SearchConfig(hot_limit=2))) as again:
        assert [found.uri for found in again.run(HOT, HotRequest())] == uris[:2]
        with pytest.raises(InvalidInput, match="limit 3"):
            again.run(HOT, HotRequest(3))


def test_which_are_hot_stays_for_an_hour(memory: Runebook) -> None:
    clock = Clock()
    uris = filled(memory, 3)
    hot = opened(memory, 2, clock)
    assert hottest(hot) == uris[:2]
    use(memory, uris[2], 9)
    clock.now = HOUR - 1
    assert hottest(hot) == uris[:2]
    clock.now = HOUR
    assert hottest(hot) == [uris[2], uris[0]]


def test_a_hardly_used_store_is_counted_anew_each_time(memory: Runebook) -> None:
    tea, code = fact(memory, "茶", "something"), fact(memory, "Code style", "something")
    assert memory.run(HOT, HotRequest()) == ()
    use(memory, tea)
    assert [found.uri for found in memory.run(HOT, HotRequest())] == [tea]
    use(memory, code, 2)
    assert [found.uri for found in memory.run(HOT, HotRequest())] == [code, tea]


def test_what_another_process_changed_or_deleted_is_seen_at_once(memory: Runebook, tmp_path: Path) -> None:
    uris = filled(memory, 4)
    hot = opened(memory, 2, Clock())
    assert hottest(hot) == uris[:2]
    with open_memory(words_only(tmp_path)) as other:
        replaced(other, "facts", "现在喝咖啡。", topic="茶 0")
        assert (hot.hot()[0].abstract, hottest(hot)) == ("现在喝咖啡。", uris[:2])
        other.commit(CommitRequest(operations={"delete_operations": [{"uri": uris[0]}]}))
        assert hottest(hot) == uris[1:3]


def test_use_of_what_is_gone_or_of_another_space_makes_nothing_hot(memory: Runebook, tmp_path: Path) -> None:
    gone, tea = fact(memory, "gone", "something"), fact(memory, "茶", "something")
    use(memory, gone, 5)
    use(memory, tea)
    with open_memory(words_only(tmp_path, user_space="lin")) as lin:
        hers = fact(lin, "hers", "something")
        use(lin, hers, 9)
        assert [found.uri for found in lin.run(HOT, HotRequest())] == [hers]
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": gone}]}))
    assert [found.uri for found in memory.run(HOT, HotRequest())] == [tea]


def test_turns_of_conversations_are_never_hot(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "zebra"}], session_id="s1"))
    for _ in range(3):
        memory.find(FindRequest("zebra"))
    memory.store.usage.flush()
    log = "viking://session/default/s1/messages.jsonl"
    assert memory.store.ledger.usage_table.usage([f"{log}#0"])[f"{log}#0"].access_count == 3
    assert memory.run(HOT, HotRequest()) == ()


def private(root: Path, name: str, project: str, *, is_private: bool) -> str:
    """A memory of a project, as a person writes it."""
    fields = {"memory_type": "facts", "topic": name, "project": project, "private": is_private}
    trailer = json.dumps(fields, ensure_ascii=False, indent=2)
    path = root / "user/default/memories/facts" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"关于 {name}\n\n<!-- MEMORY_FIELDS\n{trailer}\n-->\n", encoding="utf-8", newline="\n")
    return f"{USER}/facts/{name}.md"


def test_what_is_private_to_another_project_is_never_given(tmp_path: Path) -> None:
    secret = private(tmp_path, "密钥", "acme/网站", is_private=True)
    shared = private(tmp_path, "shared", "acme/网站", is_private=False)
    with open_memory(words_only(tmp_path)) as memory:
        tea = fact(memory, "茶", "something")
        use(memory, secret, 5)
        use(memory, shared, 3)
        use(memory, tea)
        hot = opened(memory, 2, Clock())
        assert hottest(hot, project=ProjectScope("acme/网站")) == [secret, shared]
        assert hottest(hot) == [shared, tea]
        assert hottest(hot, project=ProjectScope("other")) == [shared, tea]
        assert hottest(hot, project=ProjectScope("acme/网站", only=True)) == [secret, shared]
        assert hottest(hot, project=ProjectScope("other", only=True)) == []
