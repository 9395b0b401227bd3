"""L0 and L1: current in the same commit, bounded, and what people and models wrote stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core import open_store
from memory_core.core.index import page_rows
from memory_core.core.memory.directory_page import (
    ABSTRACT_LIMIT_CHARS,
    ENTRIES_LIMIT,
    LIST_LIMIT_CHARS,
    LIST_MARK,
    Contents,
    Listed,
    abstract_line,
    is_generated,
    listed,
    parse_page,
    readable,
    render_abstract,
    render_page,
    with_own_words,
)
from memory_core.core.memory.requests import CommitRequest, ListRequest, ReadRequest
from memory_core.core.memory.results import ChangeSet, FileChange, Status
from memory_core.core.memory.uri import OVERVIEW_NAME, MemoryUri
from memory_core.runebook import Runebook, open_memory
from tests.stores import added, handed_in, replaced, words_only, write

USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"

FACTS = f"{USER}/facts"


def put(memory: Runebook, topic: str, content: str, **arguments: Any) -> None:
    assert memory.commit(CommitRequest(content, memory_type="facts", fields={"topic": topic}, **arguments)).commit_id
    memory.indexer.follow(None)  # the line of a large directory depends on when it was last made


def overview(memory: Runebook, directory: str = FACTS, **texts: str) -> Status:
    return handed_in(memory, overview=[{"directory_uri": directory, **texts}]).status


def delete(memory: Runebook, *uris: str) -> None:
    handed_in(memory, delete=[{"uri": uri} for uri in uris])


def abstract(memory: Runebook, directory: str = FACTS) -> str:
    memory.indexer.follow(None)  # a reader waits a bounded time, a test until it is there
    return abstract_line(memory.read(ReadRequest(f"{directory}/.abstract.md")).content)


def page(memory: Runebook, directory: str = FACTS) -> str:
    memory.indexer.follow(None)
    return memory.read(ReadRequest(f"{directory}/.overview.md")).content


def names(memory: Runebook, directory: str = FACTS) -> list[str]:
    return [item.name for item in parse_page(page(memory, directory)).listed or ()]


def path(home: Path, name: str) -> Path:
    return home / "user/default/memories/facts" / name


def test_a_commit_brings_its_directorys_summaries_along(memory: Runebook) -> None:
    put(memory, "Python code style", "Four spaces, never tabs.")
    put(memory, "咖啡", "不加糖")
    assert abstract(memory) == "facts (2): 咖啡, Python code style"
    assert page(memory) == (
        f"{LIST_MARK}\n# facts (2)\n\n- 咖啡.md: 不加糖\n- Python code style.md: Four spaces, never tabs.\n"
    )
    assert len(memory.store.ledger.history()) == 2


def test_readers_see_the_line_without_its_comment(memory: Runebook) -> None:
    put(memory, "咖啡", "不加糖")
    (entry,) = [entry for entry in memory.ls(ListRequest(USER)).entries if entry.name == "facts"]
    assert entry.abstract == "facts (1): 咖啡"
    assert "<!--" not in readable(page(memory))


def test_an_update_changes_its_own_line_in_place_and_a_deletion_takes_it_away(memory: Runebook) -> None:
    for topic in ("One", "二", "Three"):
        put(memory, topic, f"about {topic}")
    replaced(memory, "facts", "另一个说法", topic="二")
    assert names(memory) == ["Three.md", "二.md", "One.md"]
    assert "- 二.md: 另一个说法\n" in page(memory)
    delete(memory, f"{FACTS}/Three.md")
    assert names(memory) == ["二.md", "One.md"]
    assert abstract(memory) == "facts (2): 二, One"


def test_the_last_deletion_leaves_summaries_that_say_so(memory: Runebook) -> None:
    put(memory, "One", "x")
    assert (abstract(memory), abstract(memory, USER)) == ("facts (1): One", "facts/")
    delete(memory, f"{FACTS}/One.md")
    assert abstract(memory) == "facts (0)"
    assert page(memory) == f"{LIST_MARK}\n# facts (0)\n"
    assert abstract(memory, USER) == "memories (0)"


def test_several_operations_of_one_commit_are_one_step_of_the_summaries(memory: Runebook) -> None:
    put(memory, "Old", "x")
    writes = [write("facts", topic=n, content=n) for n in ("一", "二")]
    deletes = [{"uri": f"{FACTS}/Old.md"}]
    receipt = handed_in(memory, write=writes, delete=deletes)
    assert len(receipt.results) == 3
    assert abstract(memory) == "facts (2): 二, 一"
    assert page(memory) == f"{LIST_MARK}\n# facts (2)\n\n- 二.md\n- 一.md\n"


def test_a_page_stays_bounded_and_counts_what_it_leaves_out(memory: Runebook) -> None:
    for start in (0, 40):
        writes = [write("facts", topic=f"第{n}条" + "长" * 70, content="字" * 500) for n in range(start, start + 40)]
        handed_in(memory, write=writes)
        memory.indexer.follow(None)
    assert len(names(memory)) == ENTRIES_LIMIT
    assert page(memory).endswith(f"- … and {80 - ENTRIES_LIMIT} more\n")
    assert len(page(memory)) <= LIST_LIMIT_CHARS
    assert abstract(memory).startswith("facts (80+): 第79条")
    assert len(abstract(memory)) <= ABSTRACT_LIMIT_CHARS


def test_the_line_of_a_large_directory_is_written_when_it_no_longer_holds_and_not_at_every_commit(
    memory: Runebook,
) -> None:
    for n in range(29):
        put(memory, f"第{n}条", "x")
        if n == ENTRIES_LIMIT:
            assert abstract(memory).startswith("facts (20+): 第24条, 第23条")
    assert abstract(memory).startswith("facts (20+): ")
    assert "第28条" not in abstract(memory)
    assert "第23条" in abstract(memory)
    delete(memory, f"{FACTS}/第23条.md")
    assert "第23条" not in abstract(memory)
    put(memory, "第23条", "x")
    put(memory, "第29条", "x")
    assert abstract(memory).startswith("facts (30+): 第29条, 第23条")
    delete(memory, f"{FACTS}/第29条.md")
    assert abstract(memory).startswith("facts (20+): 第23条")
    for n in range(5):
        delete(memory, f"{FACTS}/第{n}条.md")
    assert abstract(memory).startswith("facts (24): ")


def test_what_matters_most_stays_on_the_page(memory: Runebook) -> None:
    put(memory, "Allergy 过敏", "peanuts", priority="critical")
    for n in range(ENTRIES_LIMIT + 5):
        put(memory, f"Fact {n}", "x")
    assert "- **Allergy 过敏.md**: peanuts\n" in page(memory)
    assert len(names(memory)) == ENTRIES_LIMIT
    assert "Fact 0.md" not in names(memory)


def test_a_directory_without_a_page_is_filled_with_its_newest_and_read_no_further(memory: Runebook) -> None:
    directory = MemoryUri.parse(FACTS)
    files = [directory.child(f"事实 {n}.md") for n in range(200)]
    memory.store.commit(lambda _: ChangeSet(tuple(FileChange(uri, None, "x", "facts", uri.name) for uri in files), ()))
    read: list[MemoryUri] = []
    text = memory.store.text
    memory.store.text = lambda uri: (read.append(uri), text(uri))[1]  # type: ignore[method-assign,func-returns-value]
    put(memory, "New", "y")
    assert len(read) < ENTRIES_LIMIT + 10
    assert abstract(memory).startswith("facts (200+): New, 事实")
    assert len(names(memory)) == ENTRIES_LIMIT
    read.clear()
    put(memory, "Newer", "z")
    assert len(read) < 10
    assert names(memory)[:2] == ["Newer.md", "New.md"]


def test_files_that_people_add_and_remove_are_counted_at_the_next_commit(memory: Runebook, tmp_path: Path) -> None:
    put(memory, "One", "x")
    path(tmp_path, "手写.md").write_text("by hand", encoding="utf-8")
    path(tmp_path, "Two.md").write_text("by hand", encoding="utf-8")
    memory.store.adopt()
    put(memory, "Three", "y")
    assert abstract(memory).startswith("facts (4): ")
    assert set(names(memory)) == {"One.md", "Two.md", "Three.md", "手写.md"}
    path(tmp_path, "One.md").unlink()
    path(tmp_path, "手写.md").unlink()
    memory.store.adopt()
    put(memory, "Three", "z")
    assert abstract(memory).startswith("facts (2): ")
    assert set(names(memory)) == {"Two.md", "Three.md"}


def test_a_line_follows_an_edit_by_hand_at_the_next_commit_beside_it(memory: Runebook, tmp_path: Path) -> None:
    put(memory, "Home", "The user lives in Osaka.")
    put(memory, "城市", "用户住在大阪。")
    for name, old, new in (("Home.md", "Osaka", "Kyoto"), ("城市.md", "大阪", "京都")):
        file = path(tmp_path, name)
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8", newline="\n")
    memory.store.adopt()
    put(memory, "Tea", "Drinks green tea.")
    assert "Kyoto" in page(memory)
    assert "京都" in page(memory)
    assert "Osaka" not in page(memory)
    assert "大阪" not in page(memory)


def test_a_handwritten_file_that_nobody_adopted_counts_once_when_it_is_updated(
    memory: Runebook, tmp_path: Path
) -> None:
    put(memory, "One", "x")
    path(tmp_path, "手写.md").write_text("by hand", encoding="utf-8")
    put(memory, "手写", "now by commit")
    assert abstract(memory) == "facts (2): 手写, One"
    put(memory, "Three", "y")
    assert abstract(memory) == "facts (3): Three, 手写, One"


def test_prose_above_the_list_stays_while_the_list_moves_on(memory: Runebook, tmp_path: Path) -> None:
    put(memory, "One", "x")
    assert overview(memory, overview="# What we know\n\n说明 prose") is Status.COMMITTED
    put(memory, "二", "y")
    assert page(memory) == (f"# What we know\n\n说明 prose\n\n{LIST_MARK}\n# facts (2)\n\n- 二.md: y\n- One.md: x\n")
    text = page(memory).replace("prose", "by\r\nhand")
    path(tmp_path, ".overview.md").write_text(text, encoding="utf-8", newline="")
    put(memory, "Three", "z")
    assert page(memory).startswith("# What we know\n\n说明 by\r\nhand\n\n")
    assert names(memory) == ["Three.md", "二.md", "One.md"]


def test_a_model_that_sends_the_list_back_changes_nothing(memory: Runebook) -> None:
    put(memory, "One", "x")
    overview(memory, overview="Prose")
    assert overview(memory, overview=page(memory)) is Status.UNCHANGED
    assert overview(memory, overview="Prose") is Status.UNCHANGED


def test_a_patch_reaches_the_prose_and_not_the_generated_list(memory: Runebook) -> None:
    put(memory, "One", "x")
    overview(memory, overview="Prose one")
    patch = "<<<<<<< SEARCH\n{}\n=======\n改\n>>>>>>> REPLACE"
    assert overview(memory, overview=patch.format("Prose one")) is Status.COMMITTED
    assert overview(memory, overview=patch.format("- One.md: x")) is Status.REJECTED
    assert page(memory).startswith(f"改\n\n{LIST_MARK}\n")


def test_a_models_line_stays_until_it_is_blanked(memory: Runebook) -> None:
    put(memory, "One", "x")
    overview(memory, abstract="Facts about 办公室")
    put(memory, "Two", "y")
    assert memory.read(ReadRequest(f"{FACTS}/.abstract.md")).content == "Facts about 办公室\n"
    overview(memory, abstract="")
    assert abstract(memory) == "facts (2): Two, One"


def test_summaries_that_a_model_writes_with_the_first_memory_are_complete(memory: Runebook) -> None:
    texts = {"directory_uri": f"{FACTS}/", "abstract": "Mine", "overview": "Prose"}
    handed_in(memory, write=[write("facts", topic="一", content="x")], overview=[texts])
    assert memory.read(ReadRequest(f"{FACTS}/.abstract.md")).content == "Mine\n"
    assert page(memory) == f"Prose\n\n{LIST_MARK}\n# facts (1)\n\n- 一.md: x\n"


@pytest.mark.parametrize("text", ["my own line\n", "facts (1): One\n"], ids=["edited", "comment removed"])
def test_an_edited_line_belongs_to_the_person(memory: Runebook, tmp_path: Path, text: str) -> None:
    put(memory, "One", "x")
    path(tmp_path, ".abstract.md").write_text(text, encoding="utf-8")
    put(memory, "Two", "y")
    assert path(tmp_path, ".abstract.md").read_text(encoding="utf-8") == text


def test_pages_of_many_directories_are_made_some_at_a_time_and_one_that_is_read_at_once(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store, "_PAGES_SECONDS", 0.0)
    memory.indexer.followed = lambda: None  # the background makes none
    added(memory, "facts", topic="One", content="x")
    added(memory, "notes", title="One", content="x")
    added(memory, "entities", name="One", content="x")
    memory.indexer.follow(None)
    stale = [each.directory for each in page_rows.stale(memory.indexer.catalog.connection())]
    memory.opened.current_pages()
    left = [each.directory for each in page_rows.stale(memory.indexer.catalog.connection())]
    assert left == stale[1:]
    for directory in left:
        text = memory.read(ReadRequest(f"{directory}/.overview.md")).content
        assert "One" in text or "- facts/" in text
    assert page_rows.stale(memory.indexer.catalog.connection()) == []


def test_an_edited_line_belongs_to_the_person_even_with_the_comment_left_below(
    memory: Runebook, tmp_path: Path
) -> None:
    put(memory, "One", "x")
    memory.opened.current_pages()
    text = path(tmp_path, ".abstract.md").read_text(encoding="utf-8").replace("One", "我的话")
    path(tmp_path, ".abstract.md").write_text(text, encoding="utf-8")
    put(memory, "Two", "y")
    assert path(tmp_path, ".abstract.md").read_text(encoding="utf-8") == text
    (entry,) = [entry for entry in memory.ls(ListRequest(USER)).entries if entry.name == "facts"]
    assert entry.abstract == "facts (1): 我的话"


def test_a_page_without_the_comment_belongs_to_the_person(memory: Runebook, tmp_path: Path) -> None:
    put(memory, "One", "x")
    path(tmp_path, ".overview.md").write_text("# Mine\n- One 一\n", encoding="utf-8")
    put(memory, "Two", "y")
    assert page(memory) == "# Mine\n- One 一\n"
    assert abstract(memory).startswith("facts (2): Two")
    path(tmp_path, ".overview.md").unlink()
    put(memory, "Three", "z")
    assert set(names(memory)) == {"One.md", "Two.md", "Three.md"}


def test_a_summary_that_is_not_utf8_spoils_no_commit(memory: Runebook, tmp_path: Path) -> None:
    put(memory, "One", "x")
    raw = "概要".encode("gb18030")
    path(tmp_path, ".overview.md").write_bytes(raw)
    put(memory, "Two", "y")
    assert path(tmp_path, ".overview.md").read_bytes() == raw
    assert memory.read(ReadRequest(f"{FACTS}/Two.md")).content.startswith("y")


def test_the_directory_of_the_profile_names_the_folders_that_hold_something(memory: Runebook) -> None:
    put(memory, "One", "x")
    added(memory, "profile", "护士")
    added(memory, "preferences", "tea", topic="茶")
    assert abstract(memory, USER) == "profile, facts/, preferences/"
    assert page(memory, USER) == f"{LIST_MARK}\n# memories (1)\n\n- **profile.md**: 护士\n- facts/\n- preferences/\n"
    delete(memory, f"{FACTS}/One.md")
    assert abstract(memory, USER) == "profile, preferences/"
    added(memory, "tools", tool_name="web_search")
    assert abstract(memory, AGENT) == "tools/"


def test_the_history_of_a_commit_holds_no_list(memory: Runebook) -> None:
    put(memory, "One", "x")
    put(memory, "Two", "y")
    (newest, *_) = memory.store.ledger.history()
    changed = {str(change.uri) for change in memory.store.ledger.changes_of([newest.seq])}
    assert changed == {f"{FACTS}/Two.md"}


def test_sessions_have_no_summaries(memory: Runebook, tmp_path: Path) -> None:
    memory.commit(CommitRequest(messages=[{"role": "user", "content": "hello 你好"}], session_id="s1"))
    assert not [found for found in tmp_path.rglob(".abstract.md") if ".state" not in found.parts]


def test_a_refused_commit_and_a_dry_run_leave_the_summaries_alone(memory: Runebook) -> None:
    put(memory, "One", "x")
    before = page(memory)
    handed_in(memory, delete=[{"uri": f"{FACTS}/missing.md"}])
    memory.commit(CommitRequest("y", memory_type="facts", fields={"topic": "Two"}, dry_run=True))
    assert (page(memory), abstract(memory)) == (before, "facts (1): One")


def test_a_types_own_template_gives_the_line(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "recipes.yaml").write_text(
        "name: recipes\ndescription: Dishes.\ndirectory: 'viking://user/{user_space}/memories/recipes'\n"
        "filename_template: '{dish}.md'\ncontent_template: |-\n  Long rendered text about {dish}\n"
        "overview_template: '{times}× {taste}'\nfields:\n  - {name: dish, merge_op: immutable}\n"
        "  - {name: times, type: int64, merge_op: sum}\n  - {name: taste}\n",
        encoding="utf-8",
    )
    with open_memory(words_only(tmp_path / "home", schema_dirs=(schemas,))) as memory:
        added(memory, "recipes", dish="麻婆豆腐", times=2, taste="辣")
        assert "- 麻婆豆腐.md: 2× 辣\n" in page(memory, f"{USER}/recipes")


NAME = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters='<>:"/\\|?*'), min_size=1, max_size=60)
ITEMS = st.lists(
    st.builds(
        lambda stem, text, important: listed(f"{stem}.md", text, important=important),
        NAME,
        st.text(max_size=200) | st.just("<!-- generated below this line; what is above it is kept -->"),
        st.booleans(),
    ),
    max_size=30,
    unique_by=lambda item: item.name,
)


@given(ITEMS, st.text(max_size=60).filter(lambda text: LIST_MARK not in text))
def test_a_page_read_back_has_the_prose_and_the_lines_it_was_made_of(items: list[Listed], prose: str) -> None:
    text = render_page(prose, Contents("facts", len(items), tuple(items), ("下级",)))
    found = parse_page(text)
    assert found.authored.rstrip("\r\n") == (prose.rstrip("\r\n") if prose.strip() else "")
    assert found.listed == tuple(items[: len(found.listed or ())])
    assert len(found.listed or ()) == min(len(items), ENTRIES_LIMIT)
    assert with_own_words(OVERVIEW_NAME, text, prose) == text


def test_a_page_of_long_names_is_cut_by_characters() -> None:
    items = tuple(listed(f"{n:03}{'名' * 237}.md", "text " * 40, important=True) for n in range(ENTRIES_LIMIT))
    text = render_page("", Contents("facts", ENTRIES_LIMIT, items))
    assert len(text) <= LIST_LIMIT_CHARS + 40
    assert f"- … and {ENTRIES_LIMIT - len(parse_page(text).listed or ())} more\n" in text
    assert len(parse_page(text).listed or ()) >= ENTRIES_LIMIT // 2


@given(ITEMS, st.integers(0, 9))
def test_a_generated_line_is_one_bounded_line_and_known_as_such(items: list[Listed], more: int) -> None:
    text = render_abstract(Contents("事实", len(items) + more, tuple(items)))
    line = abstract_line(text)
    assert len(line) <= ABSTRACT_LIMIT_CHARS
    assert line.splitlines() == [line]
    assert is_generated(text)
    assert not is_generated(f"{line}!\n" + text.partition("\n")[2])
