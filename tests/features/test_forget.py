"""Forgetting on request: first shown, deleted when the same is confirmed, and undone like anything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, TreeRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.language import sentences
from memory_core.features import daily_logs, forgetting, mentions
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.graph import RELATE, RelateRequest
from memory_core.features.history import history_of
from memory_core.features.mentions import text_without, without, worded
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.features.upkeep.log_summary import MonthSummary, Remembered, dump_summary, read_summary
from memory_core.runebook import Runebook, open_memory
from tests.counting import bytecodes, is_linear
from tests.stores import body, by_hand, edit, files_below, handed_in, note, said, trailer, words_only, written

NOTES = "viking://user/default/memories/notes"
LOG = "viking://session/default/s1/messages.jsonl"
TALK = [
    {"role": "user", "content": "My landlord is called Ferdinand and he is strict."},
    {"role": "assistant", "content": "I will keep that in mind for the lease."},
    {"role": "user", "content": "我的护照号码是 E12345678，请记住。"},
    {"role": "assistant", "content": "好的，我会把护照号码记下来。"},
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path)) as opened:
        for title, content in (("猫", "猫喜欢吃鱼。"), ("狗", "狗喜欢吃肉。"), ("tax", "The tax adviser is Ms Blum.")):
            note(opened, title, content)
        yield opened


def forgotten(memory: Runebook, query: str, **more: Any) -> tuple[CommitReceipt, CommitReceipt]:
    """What is shown of a request, and what becomes of it when that is confirmed."""
    preview = memory.run(FORGET, ForgetRequest(query, **more))
    return preview, memory.run(FORGET, ForgetRequest(query, confirm=len(preview.results), **more))


def uris(memory: Runebook) -> set[str]:
    return {entry.uri for entry in memory.tree(TreeRequest(level_limit=9)).entries if entry.uri.endswith(".md")}


def test_that_a_limit_leaves_something_is_told_with_what_was_forgotten(memory: Runebook) -> None:
    said(memory, *(f"Valve {number} talk with Zacharias." for number in range(30)))
    for receipt in forgotten(memory, "Zacharias"):
        assert len(receipt.results) < 30
        assert receipt.notes[-1] == "there may be more; raise limit, or ask again"


@pytest.mark.parametrize("archived", [False, True])
def test_relations_to_what_is_forgotten_go_with_it_and_come_back_with_it(memory: Runebook, *, archived: bool) -> None:
    note(memory, "Mei", "Mei owns the adviser's letters.")
    adviser = f"{NOTES}/Mei.md"
    for other, relation in ((f"{NOTES}/猫.md", "supports"), (f"{NOTES}/tax.md", "similar")):
        memory.run(RELATE, RelateRequest(adviser, other, relation))
    if archived:
        memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/tax.md"]))
    before = trailer(memory, adviser)
    uri = "viking://archive/user/default/memories/notes/tax.md" if archived else f"{NOTES}/tax.md"
    receipt = memory.run(FORGET, ForgetRequest(uris=[uri], confirm=1))
    assert [link["uri"] for link in trailer(memory, adviser)["links"]] == [f"{NOTES}/猫.md"]
    memory.run(UNDO, UndoRequest(receipt.commit_id))
    assert trailer(memory, adviser) == before


def test_a_query_alone_only_shows_what_would_go(memory: Runebook) -> None:
    before = uris(memory)
    preview = memory.run(FORGET, ForgetRequest(query="猫喜欢吃什么"))
    assert preview.status is Status.DRY_RUN
    assert f"{NOTES}/猫.md" in {result.uri for result in preview.results}
    assert all(result.action is Action.DELETED for result in preview.results)
    assert "猫喜欢吃鱼" in str(preview.results[0].note)
    assert f"confirm={len(preview.results)}" in preview.notes[0]
    assert uris(memory) == before


def test_confirming_the_same_number_deletes_and_undo_brings_it_back(memory: Runebook) -> None:
    _, receipt = forgotten(memory, "tax adviser")
    assert receipt.status is Status.COMMITTED
    assert f"{NOTES}/tax.md" not in uris(memory)
    assert memory.find(FindRequest("tax adviser")).total == 0
    memory.run(UNDO, UndoRequest("last"))
    assert memory.find(FindRequest("tax adviser")).total == 1


def test_another_number_or_other_names_delete_nothing_and_show_again(memory: Runebook) -> None:
    before = uris(memory)
    wrong = memory.run(FORGET, ForgetRequest(query="tax adviser", confirm=7))
    assert wrong.status is Status.DRY_RUN
    assert "not 7" in wrong.notes[0]
    named = memory.run(FORGET, ForgetRequest(query="tax adviser", confirm=1, uris=[f"{NOTES}/猫.md"]))
    assert "uris" in named.notes[0]
    assert uris(memory) == before
    right = memory.run(FORGET, ForgetRequest(query="tax adviser", confirm=1, uris=[f"{NOTES}/tax.md"]))
    assert right.status is Status.COMMITTED


def test_named_memories_are_forgotten_without_a_query(memory: Runebook) -> None:
    request: dict[str, Any] = {"uris": [f"{NOTES}/猫.md", f"{NOTES}/狗.md", f"{NOTES}/none.md"]}
    preview = memory.run(FORGET, ForgetRequest(**request))
    assert [result.action for result in preview.results] == [Action.DELETED, Action.DELETED, Action.REJECTED]
    assert memory.run(FORGET, ForgetRequest(**({**request, "confirm": 2}))).status is Status.COMMITTED
    assert not uris(memory) & {f"{NOTES}/猫.md", f"{NOTES}/狗.md"}


def test_a_filter_and_a_directory_narrow_what_goes(memory: Runebook) -> None:
    memory.commit(CommitRequest("喜欢喝茶。", memory_type="preferences", fields={"topic": "茶"}))
    preview = memory.run(FORGET, ForgetRequest(query="喜欢", target_uri="viking://user/default/memories/preferences"))
    assert [result.uri for result in preview.results] == ["viking://user/default/memories/preferences/茶.md"]
    preview = memory.run(FORGET, ForgetRequest(query="喜欢", filter={"memory_type": {"eq": "notes"}}))
    assert {result.uri for result in preview.results} == {f"{NOTES}/猫.md", f"{NOTES}/狗.md"}


@pytest.mark.parametrize("raw", [{}, {"query": " "}, {"query": "x", "limit": 0}, {"query": "x", "all": True}])
def test_a_request_that_names_nothing_or_too_much_is_refused(memory: Runebook, raw: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        memory.commit(CommitRequest(alone={"forget": raw}))


def test_nothing_found_is_said_and_nothing_is_deleted(memory: Runebook) -> None:
    receipt = memory.run(FORGET, ForgetRequest(query="xylophone", confirm=0))
    assert (receipt.status, receipt.results) == (Status.UNCHANGED, ())


def test_another_users_memory_cannot_be_named(memory: Runebook) -> None:
    with pytest.raises(NotFound):
        memory.view("bob", "bob").run(FORGET, ForgetRequest(uris=[f"{NOTES}/猫.md"], confirm=1))


def test_messages_that_say_it_go_and_others_stay(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    left_alone = ForgetRequest(query="护照号码", include_conversations=False)
    assert memory.run(FORGET, left_alone).status is Status.UNCHANGED
    text = memory.read(ReadRequest(LOG)).content
    found = memory.run(FORGET, ForgetRequest(query="护照号码"))
    lines = {result.uri for result in found.results}
    assert lines == {f"{LOG}#2", f"{LOG}#3"}
    receipt = memory.run(FORGET, ForgetRequest(query="护照号码", confirm=2))
    assert receipt.status is Status.COMMITTED
    left = memory.read(ReadRequest(LOG)).content
    assert "护照" not in left
    assert left.count("\n") == text.count("\n")
    assert left.split("\n")[:2] == text.split("\n")[:2]
    messages, damage = parse_lines(left)
    assert (len(messages), damage) == (4, [])
    assert memory.find(FindRequest("护照号码")).total == 0
    assert memory.find(FindRequest("landlord Ferdinand")).hits[0].uri == f"{LOG}#0"
    memory.run(UNDO, UndoRequest("last"))
    assert memory.read(ReadRequest(LOG)).content == text


PROFILE = "viking://user/default/memories/profile.md"
LOGS = "viking://user/default/logs"
#: What is said of an address and a phone number, here and there, with what is said beside it.
SAID = [
    ("profile", None, "A nurse. I live at Hauptstraße 5, 8010 Graz. No coffee.\n\n- 电话 13800138000\n- 不吃香菜"),
    ("facts", "Parcels", "Parcels go to Hauptstraße 5, second floor. The post office closes at six."),
    ("facts", "联系方式", "手机号码是 13800138000。每天六点起床。"),
    ("notes", None, "I live at Hauptstraße 5. The garden has roses."),
    ("daily_logs", None, "She moved to Hauptstraße 5 today."),
    ("daily_logs", None, "Bought roses for the garden."),
]  # fmt: skip
ADDRESS = [
    {"role": "user", "content": "Please note that I live at Hauptstraße 5."},
    {"role": "assistant", "content": "Noted: Hauptstraße 5."},
    {"role": "user", "content": "And the roses?"},
    {"role": "assistant", "content": "Water them. 你的电话 13800138000 记下了。"},
]


@pytest.fixture
def told(memory: Runebook) -> Runebook:
    for memory_type, topic, text in SAID:
        fields = {"topic": topic} if topic else None
        memory.commit(CommitRequest(text, memory_type=memory_type, fields=fields))
    memory.commit(CommitRequest(messages=ADDRESS, session_id="s1"))
    return memory


def texts(memory: Runebook) -> dict[str, bytes]:
    """All files of the owner but pages of directories, by path."""
    root = memory.store.files.root
    memory.indexer.follow(None)
    found = {path.relative_to(root).as_posix(): text for path, text in files_below(root)}
    return {path: text for path, text in found.items() if "/." not in f"/{path}"}


@pytest.mark.parametrize(
    ("query", "gone", "stays"),
    [
        ("Forget that I live at Hauptstraße 5", "Hauptstraße", ["13800138000", "No coffee", "closes at six", "roses"]),
        ("forget my address", "Hauptstraße", ["13800138000", "No coffee", "closes at six", "roses"]),
        ("我的手机号", "13800138000", ["Hauptstraße 5, 8010", "不吃香菜", "每天六点起床", "roses"]),
        ("忘掉我的电话 13800138000", "13800138000", ["Hauptstraße 5, 8010", "不吃香菜", "每天六点起床", "roses"]),
    ],
)  # fmt: skip
def test_every_place_that_says_it_loses_that_sentence_and_nothing_else(
    told: Runebook, query: str, gone: str, stays: list[str]
) -> None:
    before = texts(told)
    preview = told.run(FORGET, ForgetRequest(query))
    assert texts(told) == before
    assert PROFILE in {result.uri for result in preview.results if result.action is Action.UPDATED}
    receipt = told.run(FORGET, ForgetRequest(query, confirm=len(preview.results)))
    assert receipt.status is Status.COMMITTED
    after = texts(told)
    assert [path for path, text in after.items() if gone in path or gone.encode() in text] == []
    whole = b"\n".join(after.values()).decode("utf-8")
    assert [words for words in stays if words not in whole] == []
    assert told.find(FindRequest(gone)).total == 0
    told.run(UNDO, UndoRequest("last"))
    assert texts(told) == before


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Tea. I live here. Roses.", "Tea. Roses."),
        ("I live here. Roses.", "Roses."),
        ("Tea.\n\nI live here.\n\nRoses.", "Tea.\n\nRoses."),
        ("- I live here.\n- Roses.", "- Roses."),
        ("1. I live here. Roses.", "1. Roses."),
        ("喜欢茶。I live here. 喜欢花。", "喜欢茶。 喜欢花。"),
        ("喜欢茶！I live here.\n喜欢花。", "喜欢茶！\n喜欢花。"),
        ("Does it hold: I live here. I live here.", "Does it hold: I live here."),
    ],
)
def test_a_text_closes_where_a_sentence_was(text: str, left: str) -> None:
    assert without(text, ["I live here."]) == left


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("- Tea\n- Tea Board of India\n- Beer", "- Tea", "- Tea Board of India\n- Beer"),
        ("- 盐\n- 盐城的工厂明天开工", "- 盐", "- 盐城的工厂明天开工"),
        ("狗\n狗年出生的员工", "狗", "狗年出生的员工"),
        ("- Tea - green, 2) white.\n- Beer", "- Tea - green, 2) white.", "- Beer"),
    ],
)
def test_the_same_words_within_another_sentence_stay(text: str, gone: str, left: str) -> None:
    assert without(text, [gone]) == left


@pytest.mark.parametrize(
    ("text", "query", "left"),
    [
        ("診斷結果是乙型肝炎。HIV 檢測為陰性。", "診斷結果是乙型肝炎", "HIV 檢測為陰性。"),
        ("钥匙在红盒子里！3号楼在左边。", "钥匙在红盒子里", "3号楼在左边。"),
        ("The code is swordfish!Do call Anna.", "the code is swordfish", "Do call Anna."),
        ("Ask Dr.\u00a0Wolpert about the swordfish. Call Anna.", "Wolpert swordfish", "Call Anna."),
        ("Ask Dr.  Hamann about the swordfish. Call Anna.", "Hamann swordfish", "Call Anna."),
    ],
)
def test_a_sentence_goes_as_it_stands(memory: Runebook, text: str, query: str, left: str) -> None:
    note(memory, "List", text)
    _, receipt = forgotten(memory, query)
    assert [result.action for result in receipt.results] == [Action.UPDATED]
    assert body(memory, f"{NOTES}/List.md").strip() == left


@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        (
            "## Allergic to\n- nuts\n## HIV of Peter\n- door\n## Likes",
            "## HIV of Peter",
            "## Allergic to\n- nuts\n## …\n- door\n## Likes",
        ),
        ("## Allergic to\n## HIV of Peter\n## Likes\n- tea", "## HIV of Peter", "## Allergic to\n## Likes\n- tea"),
        (
            "- **Otto**:\n  Plays chess.\n- **Peter**:\n  Is ill.",
            "- **Peter**:",
            "- **Otto**:\n  Plays chess.\n- …\n  Is ill.",
        ),
        ("- Otto\n- Peter\n- Rosa", "- Peter", "- Otto\n- Rosa"),
        ("Peter has:\n- a dog\n\nTea.", "Peter has:", "…\n- a dog\n\nTea."),
        ("Peter has:\n\nTea.", "Peter has:", "Tea."),
    ],
)
def test_what_stands_below_a_line_that_goes_does_not_come_below_another(text: str, gone: str, left: str) -> None:
    assert without(text, [gone]) == left


#: Texts with a line that leads what stands below it, and what ``…`` makes of that line.
LED = [
    ("**Allergic to**\n- nuts\n\n**Anna's keys**\n- door\n\n**Likes**\n- tea", "…"),
    ("**Allergic to**\nNuts.\n\n**Anna's keys**\nThe door.", "…"),
    ("**Allergic to**\n\nNuts.\n\n__Anna's keys__:\n\nThe door.", "…"),
    ("Allergic to\n- nuts\n\nAnna's keys\n\n- door", "…"),
    ("Allergic to —\n- nuts\n\nAnna's keys —\n- door", "…"),
    ("- nuts\n\nThese are Anna's keys.\n* door", "…"),
    ("Nuts.\n\nAnna's keys\n\n> door", "…"),
    ("Nuts.\n\nAnna's keys\n\n    door", "…"),
    ("Nuts.\n\nAnna's keys\n\n```\ndoor\n```", "…"),
    ("Nuts.\nAnna's keys are\nwith the porter.", "…"),
    ("Allergic to\n: nuts\n\nAnna's keys\n: door", "…"),
    ("Allergic to\n===\nNuts.\n\nAnna's keys\n===\n\nThe door.\n\nLikes\n===\nTea.", "…"),
    ("1. Allergic to\n   - nuts\n2. Anna's keys\n   - door\n3. Likes\n   - tea", "2. …"),
    ("## 1. Allergic to\nNuts.\n## 2. Anna's keys\nThe door.", "## 2. …"),
    ("> ## Allergic to\n> - nuts\n>\n> ## Anna's keys\n> - door", "> ## …"),
    ("## Allergic to\n - nuts\n\n ## Anna's keys\n - door", " ## …"),
    ("\ufeff# Anna's keys\nThe door.", "\ufeff# …"),
    ("<h2>Allergic to</h2>\n<p>nuts</p>\n<h2 id='keys'>Anna's keys</h2>\n<p>door</p>", "<h2>…</h2>"),
    ("<dt>Allergic to</dt>\n<dd>nuts</dd>\n<dt>Anna's keys</dt>\n<dd>door</dd>", "<dt>…</dt>"),
    ("| Anna's keys | |\n|---|---|\n| nuts | milk |", "| … | |"),
    ("Door | Anna's keys\n---|---\nnuts | milk", " … | … "),
    ("| Allergic to | |\n|---|---|\n| | nuts |\n| Anna's keys | |\n| | door |", "| … | |"),
    ("- [ ] Allergic to\n    - [ ] nuts\n- [x] Anna's keys\n    - [ ] door", "- [x] …"),
    ("- Allergic to\n\t- nuts\n- Anna's keys\n\t- door", "- …"),
    ("- Allergic to:\n- nuts\n- Anna's keys:\n- door\n- Likes:\n- tea", "- …"),
    ("- **Allergic to**\n- nuts\n- **Anna's keys**\n- door", "- …"),
    ("- nuts\n- Anna's keys\ndoor", "- …"),
    ("- nuts\n  Anna's keys.\n  - door", "  …"),
    ("Anna likes tea. Anna's keys:\n- door", "Anna likes tea. …"),
    ("一、过敏\n- 坚果\n\n二、Anna's keys\n- 门", "…"),
    ("一、过敏\n\n坚果。\n\n（二）Anna's keys\n\n门在左边。", "…"),
    ("坚果。\n\nAnna's keys：\n一、门\n二、箱", "…"),
    ("过敏\n1、坚果\nAnna's keys\n1、门", "…"),
    ("1、过敏\n坚果\n2、Anna's keys\n门", "2、…"),
    ("【过敏】\n坚果\n\n【Anna's keys】\n门", "…"),
    ("*Allergic to*\nNuts\n\n*Anna's keys*\nDoor", "…"),
    ("第一章 过敏\n\n坚果。\n\n第二章 Anna's keys\n\n门在左边。", "…"),
    ("★ Allergic to\nNuts\n\n★ Anna's keys\nDoor", "…"),
]


@pytest.mark.parametrize(("text", "elided"), LED)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_that_leads_what_stands_below_it_leaves_its_marks(text: str, elided: str, end: str) -> None:
    [line] = [line for line in text.split("\n") if "Anna's keys" in line]
    gone = [each for each in sentences(text) if "Anna's keys" in each]
    kept = without(text.replace("\n", end), gone)
    assert kept == text.replace(line, elided).replace("\n", end)
    assert worded(elided.removeprefix("Anna likes tea. ")) == []
    assert worded(without(kept, worded(kept))) == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Peter has HIV.\n\nHe likes tea.", "He likes tea."),
        ("Tea\n\nPeter has HIV\n\nHe likes roses.", "Tea\n\nHe likes roses."),
        ("Likes tea\nPeter has HIV\nLikes roses", "Likes tea\nLikes roses"),
        ("Peter has HIV.\nHe likes tea.", "He likes tea."),
        ("**Peter has HIV.**\n\nHe likes tea.", "He likes tea."),
        ("**Peter has HIV**\n**Likes**\n- tea", "**Likes**\n- tea"),
        ("**Peter has HIV**\n\n# Likes\n- tea", "# Likes\n- tea"),
        ("> Peter has HIV:\n\n- tea", "- tea"),
        ("- roses\n  Peter has HIV\n- tea", "- roses\n- tea"),
        ("- Peter has HIV:\n- Likes:\n- tea", "- Likes:\n- tea"),
        ("- Peter has HIV\n\nTea.", "Tea."),
        ("1. Tea\n2. Peter has HIV\n3. Roses", "1. Tea\n3. Roses"),
        ("- [x] Peter has HIV. 5\n- tea", "- 5\n- tea"),
        ("> ## Peter has HIV. 5\n- tea", "5\n- tea"),
        ("一、茶\n二、Peter has HIV\n三、花", "一、茶\n三、花"),
        ("Tea\n---\nx\n\nPeter has HIV\n---\n\nRoses\n---\ny", "Tea\n---\nx\n\nRoses\n---\ny"),
        ("| Peter has HIV | |\n|---|---|\n\nTea.", "Tea."),
        ("| a | b |\n|---|---|\n| Peter has HIV | |\n| tea | |", "| a | b |\n|---|---|\n| tea | |"),
        ("---\ntags: [a]\ndone: Peter has HIV\n---\n\nTea.", "---\ntags: [a]\n---\n\nTea."),
        ("Peter has HIV:\n…\n- tea", "…\n- tea"),
    ],
)
def test_a_line_that_leads_nothing_goes_without_a_mark(text: str, left: str) -> None:
    assert without(text, [each for each in sentences(text) if "Peter has HIV" in each]) == left


def test_marks_that_a_forgotten_line_left_are_nothing_to_keep(memory: Runebook) -> None:
    note(memory, "List", "1. Allergic to\n   - nuts\n2. Passwords of Anna\n   - swordfish at the door")
    forgotten(memory, "passwords of Anna")
    assert body(memory, f"{NOTES}/List.md").strip() == "1. Allergic to\n   - nuts\n2. …\n   - swordfish at the door"
    forgotten(memory, "allergic to")
    forgotten(memory, "nuts")
    _, receipt = forgotten(memory, "swordfish at the door")
    assert [result.action for result in receipt.results] == [Action.DELETED]


def test_some_of_the_places_may_be_chosen(told: Runebook) -> None:
    request = ForgetRequest("Hauptstraße 5", uris=[PROFILE, f"{LOGS}/none.md"], confirm=1)
    assert told.run(FORGET, request).status is Status.DRY_RUN
    chosen = ForgetRequest("Hauptstraße 5", uris=[PROFILE], confirm=1)
    assert [result.uri for result in told.run(FORGET, chosen).results] == [PROFILE]
    assert "Hauptstraße" not in told.read(ReadRequest(PROFILE)).content
    assert "second floor" in told.find(FindRequest("Hauptstraße parcels")).hits[0].abstract


def test_an_entry_of_a_log_is_named_by_its_line(told: Runebook) -> None:
    found = told.find(FindRequest("roses garden", filter={"memory_type": "daily_logs"})).hits[0].uri
    assert told.run(FORGET, ForgetRequest(uris=[found], confirm=1)).status is Status.COMMITTED
    log = told.read(ReadRequest(found.partition("#")[0])).content
    assert "roses" not in log
    assert "She moved" in log
    assert told.run(FORGET, ForgetRequest(uris=[f"{PROFILE}#2"])).status is Status.REJECTED


def test_an_entry_that_moved_since_it_was_found_is_left_alone(told: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told.find(FindRequest("roses garden", filter={"memory_type": "daily_logs"})).hits[0].uri
    log, _, line = found.partition("#")
    commit = told.store.commit

    def after_another(*given: Any, **more: Any) -> CommitReceipt:
        monkeypatch.setattr(told.store, "commit", commit)
        path = told.store.files.path_for(MemoryUri.parse(log))
        lines = path.read_text("utf-8").split("\n")
        path.write_text("\n".join([*lines[: int(line)], "- Painted the fence.", *lines[int(line) :]]), "utf-8")
        return commit(*given, **more)

    monkeypatch.setattr(told.store, "commit", after_another)
    receipt = told.run(FORGET, ForgetRequest(uris=[found], confirm=1))
    assert [result.action for result in receipt.results] == [Action.REJECTED]
    left = told.read(ReadRequest(log)).content
    assert "roses" in left
    assert "Painted the fence." in left


def test_what_others_write_until_it_goes_stays(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    said(memory, "We plan the launch.", "The swordfish opens the wiki.")
    commit = memory.store.commit

    def after_another(*given: Any, **more: Any) -> CommitReceipt:
        monkeypatch.setattr(memory.store, "commit", commit)
        memory.run(UNDO, UndoRequest("last"))
        said(memory, "We plan the launch.", "The party is at Carla's house.")
        handed_in(memory, edit=[edit(f"{NOTES}/tax.md", content="The tax adviser is Mr Grau; 狗 is her dog.")])
        return commit(*given, **more)

    monkeypatch.setattr(memory.store, "commit", after_another)
    named = [f"{LOG}#1", f"{NOTES}/tax.md", f"{NOTES}/猫.md"]
    receipt = memory.run(FORGET, ForgetRequest(uris=named, confirm=3))
    assert {result.uri for result in receipt.results if result.action is Action.REJECTED} == set(named[:2])
    assert "Carla's house" in memory.read(ReadRequest(LOG)).content
    assert uris(memory) == {f"{NOTES}/tax.md", f"{NOTES}/狗.md"}
    assert "Mr Grau" in memory.read(ReadRequest(f"{NOTES}/tax.md")).content


def test_a_log_in_the_archive_loses_what_its_owner_wrote_without_a_dash(told: Runebook) -> None:
    archived = told.store.files.root / "archive/user/default/logs/2024-03-02.md"
    archived.parent.mkdir(parents=True)
    archived.write_text("# 2024-03-02\n\n* 10:00 Moved into Hauptstraße 5.\n* 11:00 Bought bread.\n", "utf-8")
    forgotten(told, "I live at Hauptstraße 5")
    assert archived.read_text("utf-8").count("\n* ") == 1
    assert "Bought bread" in archived.read_text("utf-8")


def test_a_preview_asks_for_the_number_that_is_then_taken(told: Runebook) -> None:
    places = [result.uri for result in told.run(FORGET, ForgetRequest("Hauptstraße 5")).results]
    two = ForgetRequest("Hauptstraße 5", uris=places[:2], confirm=len(places))
    assert "confirm=2" in " ".join(told.run(FORGET, two).notes)
    assert told.run(FORGET, replace(two, confirm=2)).status is Status.COMMITTED


def test_a_forgotten_message_does_not_come_back_when_the_conversation_is_sent_again(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=TALK, session_id="s1"))
    memory.run(FORGET, ForgetRequest(uris=[f"{LOG}#2"], include_conversations=True, confirm=1))
    more = [*TALK, {"role": "user", "content": "What about the weather in Kyoto?"}]
    receipt = memory.commit(CommitRequest(messages=more, session_id="s1"))
    assert receipt.usage is not None
    assert receipt.usage["messages_new"] == 1
    assert "E12345678" not in memory.read(ReadRequest(LOG)).content
    row = memory.store.ledger.extractions.get(MemoryUri.parse(LOG))
    assert row is not None
    assert row.stored == 5


def test_a_retry_of_a_confirmed_request_gets_the_first_receipt(memory: Runebook) -> None:
    request = ForgetRequest("tax adviser", confirm=1, request_id="r1")
    first = memory.run(FORGET, request)
    assert memory.run(FORGET, request).commit_id == first.commit_id


def test_a_sentence_longer_than_any_question_is_forgotten(memory: Runebook) -> None:
    note(memory, "Vault", "The zebra vault: " + "动物园里的钥匙" * 5_000)
    preview, _ = forgotten(memory, "zebra vault")
    assert [result.uri for result in preview.results] == [f"{NOTES}/Vault.md"]
    assert f"{NOTES}/Vault.md" not in uris(memory)


def test_what_is_more_than_one_request_takes_goes_by_several(memory: Runebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentions, "_TOGETHER_CHARS", 500)
    monkeypatch.setattr(mentions, "_FOUND_CHARS", 2_000)
    rest = " ".join(f"Line {number} of the rest." for number in range(30))
    for number in range(10):
        note(memory, f"Vault {number}", f"The zebra code is 4711. {rest}")
    memory.run(ARCHIVE, ArchiveRequest([f"{NOTES}/Vault {number}.md" for number in range(5, 10)]))
    taken = list[int]()
    while not taken or taken[-1]:
        preview, receipt = forgotten(memory, "the zebra code")
        taken.append(len(preview.results))
        is_more = "more than one request takes" in " ".join(preview.notes)
        assert is_more is ("more than one request takes" in " ".join(receipt.notes))
        assert is_more or sum(taken) >= 8
    assert max(taken) <= 4
    assert sum(taken) == 10
    left = [text for path, text in files_below(memory.config.root) if path.suffix == ".md" and b"Line 7" in text]
    assert (len(left), b"4711" in b"".join(left)) == (10, False)


def test_sentences_are_compared_in_meaning_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        note(memory, "Vault", "The zebra vault. " + " ".join(f"Line {number} of it." for number in range(10_000)))
        note(memory, "Long", "The zebra vault " + "动物园里的钥匙" * 5_000)
        memory.indexer.follow(None)
        embedder = memory.indexer.embedder
        assert embedder is not None
        assert embedder.ready(60.0)
        given: list[Sequence[str]] = []
        embed = embedder.embed

        def count(texts: Sequence[str], **more: bool) -> Any:
            given.append(texts)
            return embed(texts, **more)

        monkeypatch.setattr(embedder, "embed", count)
        preview, _ = forgotten(memory, "zebra vault")
    assert {result.uri for result in preview.results} == {f"{NOTES}/Vault.md", f"{NOTES}/Long.md"}
    assert max(map(len, given)) <= 4_000
    assert max(len(text) for texts in given for text in texts) <= 2_000


def test_a_word_is_forgotten_where_it_stands_for_itself(memory: Runebook) -> None:
    assert without("- Tea\n- Teapot is blue", ["Tea"]) == "- Teapot is blue"
    memory.commit(CommitRequest("Drinks tea. The team meets on Monday. Lives in Oslo.", memory_type="profile"))
    forgotten(memory, "tea")
    kept = memory.read(ReadRequest("viking://user/default/memories/profile.md")).content
    assert "The team meets on Monday. Lives in Oslo." in kept
    assert "Drinks tea" not in kept


def test_what_gets_another_name_keeps_its_project_and_what_else_was_said_of_it(memory: Runebook) -> None:
    data = {
        "memory_type": "notes",
        "fields": {"title": "The vault code is 4471", "content": "The vault code is 4471. Ask Ines for the key."},
        "tags": ["bank"],
        "pinned": True,
    }
    memory.commit(
        CommitRequest(operations={"write_operations": [{"memory_data": data}]}, project="acme/x", private=True)
    )
    _, receipt = forgotten(memory, "vault code", here="acme/x")
    assert receipt.status is Status.COMMITTED
    (path, text) = next(
        each for each in files_below(memory.config.root) if b"Ask Ines" in each[1] and ".state" not in each[0].parts
    )
    assert "4471" not in path.name
    assert b"4471" not in text
    stated = trailer(memory, f"{NOTES}/{path.name}")
    assert (stated["project"], stated["private"], stated["tags"], stated["pinned"]) == ("acme/x", True, ["bank"], True)
    memory.run(UNDO, UndoRequest("last"))
    assert f"{NOTES}/The vault code is 4471.md" in uris(memory)


#: Says an address where no search looks, or where a whole file would go.
OVERVIEW = "About parcels.\nParcels go to Hauptstraße 5.\nThe yard is open."


def aside(memory: Runebook) -> dict[str, str]:
    """Files that say the address beside something else, by URI, with what else they say."""
    facts = "viking://user/default/memories/facts"
    page = {"directory_uri": facts, "abstract": "Parcels: Hauptstraße 5. Wi-Fi.", "overview": OVERVIEW}
    memory.commit(CommitRequest(operations={"overview_operations": [page]}))
    memory.commit(CommitRequest("Grows roses. Address: Hauptstraße 5.", memory_type="rolling_summary"))
    note = "I live at Hauptstraße 5. The cellar is dry."
    put_away = memory.commit(CommitRequest(note, memory_type="notes", fields={"title": "Cellar"})).results[0].uri
    named = memory.commit(CommitRequest("Moved to Hauptstraße 5. The attic is warm.", memory_type="notes")).results[0]
    memory.run(ARCHIVE, ArchiveRequest([put_away, named.uri]))
    fields = {"tool_name": "label", "recommendation": "Print Hauptstraße 5.", "best_for": "Parcels."}
    tool = memory.commit(CommitRequest(memory_type="tools", fields=fields)).results[0].uri
    root = memory.store.files.root
    path = root / tool.removeprefix("viking://")
    path.write_text(path.read_text("utf-8").replace("Tool: label", "Tool: label\n\nMine: the red one. Hauptstraße 5!"))
    loose = root / "user/default/memories/loose/paper.md"
    loose.parent.mkdir()
    said = '<!-- MEMORY_FIELDS\n{"abstract": "To deliver: Hauptstraße 5, the b…", "from": "a page"}\n-->'
    loose.write_text(f"Deliver to Hauptstraße 5. The bell is broken.\n\n{said}\n", "utf-8")
    return {
        f"{facts}/.abstract.md": "Wi-Fi",
        f"{facts}/.overview.md": "The yard is open",
        "viking://user/default/rolling_summary.md": "Grows roses",
        "viking://archive/user/default/memories/notes/Cellar.md": "The cellar is dry",
        tool: "Mine: the red one.",
        "viking://user/default/memories/loose/paper.md": 'The bell is broken.\n\n<!-- MEMORY_FIELDS\n{\n  "from": ',
    }


def test_pages_summaries_the_archive_and_what_a_person_wrote_lose_the_sentence_only(told: Runebook) -> None:
    others = aside(told)
    told.indexer.follow(None)
    before = {uri: told.read(ReadRequest(uri)).content for uri in others}
    preview, _ = forgotten(told, "I live at Hauptstraße 5")
    assert set(others) <= {result.uri for result in preview.results}
    for uri, kept in others.items():
        left = told.read(ReadRequest(uri)).content
        assert kept in left
        assert "Hauptstraße" not in left
    root = told.store.files.root
    told.indexer.follow(None)
    told.opened.current_pages()
    files = {path.relative_to(root).as_posix(): text for path, text in files_below(root) if ".state" not in path.parts}
    assert [path for path, text in files.items() if "Hauptstraße" in path or "Hauptstraße".encode() in text] == []
    assert any(b"The attic is warm." in text for path, text in files.items() if path.startswith("archive/"))
    told.run(UNDO, UndoRequest("last"))
    told.indexer.follow(None)  # a page's list is made of what is indexed
    assert {uri: told.read(ReadRequest(uri)).content for uri in others} == before


def test_a_months_summary_keeps_nothing_in_other_words() -> None:
    said, kept = "Maria gave the code 4711.", "The build of step 12 failed."
    summary = MonthSummary(month="2026-09", overview=f"{said} {kept}").showing(
        {"2026-09-14": f"- [2026-09-14](viking://user/default/logs/2026-09-14.md)\n  - 19:49 {said}\n  - 19:50 {kept}"}
    )
    place = MemoryUri.parse("viking://user/default/logs/summaries/2026-09.md")
    left = text_without(place, dump_summary(summary, "2026-10-01T00:00:00+00:00"), [said, f"- 19:49 {said}"])
    assert left is not None
    assert "4711" not in left
    read = read_summary("2026-09", None, left)
    assert (read.overview, read.edited) == ("", False)
    assert kept in read.body


@pytest.mark.parametrize("overview", ["5", "true", '"20"', '"  "', '["x"]', '{"a": 1}'])
def test_an_overview_that_somebody_wrote_into_the_comment_takes_nothing_of_the_page_along(overview: str) -> None:
    place = MemoryUri.parse("viking://user/default/logs/summaries/2026-05.md")
    said = "- 19:49 The code is 4711."
    page = f"# 2026-05\n\nTrue, 20 of them.\n\n\n\n- [2026-05-14](viking://x)\n  {said}\n  - 19:50 Kept.\n"
    left = text_without(place, f'{page}\n<!-- MEMORY_FIELDS\n{{"overview": {overview}}}\n-->\n', [said])
    assert left is not None
    assert "4711" not in left
    assert "# 2026-05\n\nTrue, 20 of them.\n\n" in left
    assert "- 19:50 Kept." in left


def test_what_only_a_page_says_is_found_and_forgotten(memory: Runebook) -> None:
    page = {"directory_uri": NOTES, "overview": "About animals.\nThe parrot is called Zorro.\nThe cat sleeps."}
    memory.commit(CommitRequest(operations={"overview_operations": [page]}))
    preview, _ = forgotten(memory, "the parrot Zorro")
    assert [result.uri for result in preview.results] == [f"{NOTES}/.overview.md"]
    assert memory.store.look(MemoryUri.parse(f"{NOTES}/.overview.md"))[0] == "About animals.\nThe cat sleeps.\n"


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_forgotten(memory: Runebook) -> None:
    root = memory.store.files.root
    for damaged in (f"{NOTES}/狗.md", f"{NOTES.replace('viking://', 'viking://archive/')}/old.md"):
        path = root / damaged.removeprefix("viking://")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"The tax adviser is Ms Blum. \xff\xfe\n")
    memory.store.adopt()
    memory.indexer.follow(None)
    assert f"{NOTES}/狗.md" in [hit.uri for hit in memory.find(FindRequest("tax adviser")).hits]
    preview, receipt = forgotten(memory, "tax adviser")
    assert [result.uri for result in preview.results] == [f"{NOTES}/tax.md"]
    assert receipt.status is Status.COMMITTED


def test_what_a_person_wrote_just_now_is_forgotten_and_the_files_of_others_are_not_looked_at(
    memory: Runebook,
) -> None:
    root = memory.store.files.root
    for user in ("default", "bob"):
        by_hand(root, f"user/{user}/memories/notes/boat.md", "The boat is called Marisol.\n")
    preview, _ = forgotten(memory, "Marisol")
    assert [result.uri for result in preview.results] == [f"{NOTES}/boat.md"]
    assert not (root / "user/default/memories/notes/boat.md").exists()
    assert not memory.store.ledger.movements.stats(MemoryUri.parse("viking://user/bob"))


def test_history_says_what_went_whole_and_what_in_part(memory: Runebook) -> None:
    note(memory, "dog", "Bob owns a dog.")
    note(memory, "Lin has two cats", "Lin has two cats. Lin lives in Chengdu.")
    note(memory, "home", "Ann has a parrot. Ann lives in 成都.")

    def forgotten(query: str) -> str:
        memory.run(FORGET, ForgetRequest(query, confirm=1))
        return history_of(memory).commits(limit=1)[0].line

    assert forgotten("Bob owns a dog") == "forgot notes/dog.md"
    assert forgotten("Ann has a parrot") == "forgot part of notes/home.md"
    assert (
        forgotten("Lin has two cats")
        == "forgot notes/Lin has two cats.md; kept the rest as notes/Lin lives in Chengdu.md"
    )


def test_what_is_unrelated_is_not_forgotten_because_it_is_the_nearest(memory: Runebook) -> None:
    memory.commit(CommitRequest("A short page about tea 茶.", memory_type="rolling_summary"))
    note(memory, "boat", "The boat is in the harbour.")
    for query in ("quantum physics", "独角兽"):
        shown = memory.run(FORGET, ForgetRequest(query))
        assert "rolling_summary" not in "".join(result.uri for result in shown.results)
    assert "rolling_summary" in "".join(result.uri for result in memory.run(FORGET, ForgetRequest("tea 茶")).results)


def test_many_entries_of_one_log_are_work_for_each_and_not_for_each_pair(tmp_path: Path) -> None:
    def work(entries: int) -> int:
        with open_memory(words_only(tmp_path / str(entries))) as memory:
            data = [{"memory_type": "daily_logs", "fields": {"content": f"Step {n}."}} for n in range(entries)]
            log = MemoryUri.parse(written(memory, *data)[0])
            addresses = [f"{log}#{entry.line}" for entry in daily_logs.entries(memory.store.text(log) or "")]
            assert len(addresses) == entries
            asked = ForgetRequest(uris=addresses, confirm=entries)
            count = bytecodes(daily_logs, lambda: memory.run(FORGET, asked))
            assert daily_logs.entries(memory.store.text(log) or "") == ()
            return count

    assert is_linear(work, 15)


def test_messages_of_many_conversations_are_work_for_each_and_not_for_each_pair(tmp_path: Path) -> None:
    def work(logs: int) -> int:
        with open_memory(words_only(tmp_path / str(logs))) as memory:
            for n in range(logs):
                said(memory, "One.", "Two.", session_id=f"s{n}")
            places = [f"viking://session/default/s{n}/messages.jsonl" for n in range(logs)]
            addresses = [f"{place}#{line}" for line in (0, 1) for place in places]
            asked = ForgetRequest(uris=addresses, confirm=len(addresses))
            count = bytecodes(forgetting, lambda: memory.run(FORGET, asked))
            assert not any("One." in (memory.store.text(MemoryUri.parse(place)) or "") for place in places)
            return count

    assert is_linear(work, 10)


def test_what_is_named_twice_goes_once_and_in_the_order_that_was_given(memory: Runebook) -> None:
    data = [{"memory_type": "daily_logs", "fields": {"content": f"Step {n}."}} for n in range(3)]
    log = written(memory, *data)[0]
    places = [f"{log}#4", f"{NOTES}/tax.md", f"{log}#2", f"{log}#02", f"{log}#900", f"{NOTES}/none.md"]
    shown = memory.run(FORGET, ForgetRequest(uris=places)).results
    assert [result.uri for result in shown] == [*places[:3], places[2], *places[4:]]
    refused = Action.REJECTED
    assert [result.action for result in shown] == [*[Action.DELETED] * 4, refused, refused]
    memory.run(FORGET, ForgetRequest(uris=places, confirm=4))
    assert [entry.text for entry in daily_logs.entries(memory.read(ReadRequest(log)).content)] == ["Step 2."]


def test_what_is_in_the_archive_alone_is_found(memory: Runebook) -> None:
    key = note(memory, "key", "The quagga key lies under the stone. The cellar is dry.").results[0].uri
    note(memory, "stone", "A stone wall needs no key. 石墙。")
    memory.run(ARCHIVE, ArchiveRequest([key, f"{NOTES}/tax.md"]))
    away = f"viking://archive/{key.removeprefix('viking://')}"
    for query in ("quagga key", "Where is the quagga key?"):
        shown = memory.run(FORGET, ForgetRequest(query))
        assert [result.uri for result in shown.results] == [away]
    memory.run(FORGET, ForgetRequest("quagga key", confirm=1))
    assert "quagga" not in (text := memory.store.text(MemoryUri.parse(away)) or "")
    assert "The cellar is dry." in text


def test_one_commit_rewrites_a_bounded_amount_of_conversations_and_says_what_is_left(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "_LOGS_CHARS", 150)
    for number in range(4):
        said(memory, "The safe opens with zanzibar.", "x" * 100, session_id=f"s{number}")
    places = [f"viking://session/default/s{number}/messages.jsonl#0" for number in range(4)]
    receipt = memory.run(FORGET, ForgetRequest(uris=places, confirm=4))
    assert receipt.status is Status.PARTIAL
    assert [result.action for result in receipt.results] == [Action.DELETED, *[Action.REJECTED] * 3]
    assert "forget the rest by another one" in str(receipt.results[-1].reason)
    for place in places[1:]:
        memory.run(FORGET, ForgetRequest(uris=[place], confirm=1))
    assert not any("zanzibar" in (memory.store.text(MemoryUri.parse(place[:-2])) or "") for place in places)


def cats_forgotten(memory: Runebook) -> tuple[str, str]:
    """A memory whose name said it lost the sentence and got another name: the URI, and the commit that forgot."""
    note(memory, "Lin has two cats", "Lin has two cats. Lin lives in Chengdu.")
    commit = memory.run(FORGET, ForgetRequest("Lin has two cats", confirm=1)).commit_id
    return f"{NOTES}/Lin lives in Chengdu.md", commit


@pytest.mark.parametrize("archived", [True, False])
def test_one_commit_takes_so_many_files_and_says_what_is_left(memory: Runebook, *, archived: bool) -> None:
    folder = "archive/user" if archived else "user"
    uris = [f"viking://{folder}/default/memories/own/{number}.md" for number in range(1_100)]
    for uri in uris:
        by_hand(memory.config.root, uri.removeprefix("viking://"), "The vault code is 4471.\n")
    memory.store.adopt()
    first = memory.run(FORGET, ForgetRequest(uris=uris, confirm=len(uris)))
    left = [result.uri for result in first.results if result.action is Action.REJECTED]
    assert 0 < len(left) < 400
    assert sum(result.action is Action.DELETED for result in first.results) == len(uris) - len(left)
    assert memory.run(FORGET, ForgetRequest(uris=left, confirm=len(left))).status is Status.COMMITTED
    assert not list((memory.config.root / folder / "default/memories/own").glob("[0-9]*.md"))


def test_what_was_forgotten_by_another_name_goes_with_a_purge(memory: Runebook) -> None:
    uri, _ = cats_forgotten(memory)
    memory.run(PURGE, PurgeRequest(uri))
    rows = memory.store.ledger.database.connection().execute("SELECT * FROM changes").fetchall()
    assert "two cats" not in str(rows)


def test_a_forgetting_whose_old_name_is_taken_by_now_is_not_undone_by_half(memory: Runebook) -> None:
    uri, commit = cats_forgotten(memory)
    note(memory, "Lin has two cats", "Another one.")
    refused = memory.run(UNDO, UndoRequest(commit))
    assert refused.status is Status.REJECTED
    assert "Lin lives in Chengdu." in memory.read(ReadRequest(uri)).content


def told_of(memory_type: str, tags: Sequence[str] = (), /, **fields: str) -> dict[str, Any]:
    return {"memory_type": memory_type, "fields": fields, **({"tags": list(tags)} if tags else {})}


def owned(memory: Runebook) -> dict[str, str]:
    """The memories of the owner, and what is archived of them, by path below their spaces."""
    root = memory.store.files.root
    return {
        path.relative_to(root).as_posix().partition("default/memories/")[2]: text.decode()
        for path, text in files_below(root)
        if path.suffix == ".md" and "memories" in path.parts and not path.name.startswith(".")
    }


#: What only the name of a memory says, the question, and what is called how afterwards; None where it goes whole.
NAMED = [
    (told_of("events", event_name="HIV diagnosis of Peter", event_time="2026-11-20", content="He was told in Leeds."),
     "Peter HIV", "events/2026-11-20_He was told in Leeds.md"),
    (told_of("tasks", title="Fetch HIV medication for Peter", state="open"), "Peter HIV", None),
    (told_of("tasks", title="Fetch HIV medication for Peter", state="open", content="Before noon."), "Peter HIV",
     "tasks/Before noon.md"),
    (told_of("entities", entity_name="Peter (HIV positive)", content="Peter lives in Leeds."), "Forget Peter HIV",
     "entities/Peter lives in Leeds.md"),
    (told_of("entities", entity_name="Peter HIV clinic", entity_type="place"), "Peter HIV", None),
    (told_of("notes", title="HIV test of Peter", content="- It came by mail. Ask Ines."), "HIV Peter",
     "notes/It came by mail.md"),
    (told_of("facts", topic="Peter has HIV", content="Known since May. He told nobody."), "Peter HIV", None),
    (told_of("cases", case_name="Peter HIV insurance", problem="They refused.", solution="Wrote a letter."),
     "Peter HIV", "cases/They refused.md"),
    (told_of("tools", tool_name="peter-hiv-lookup", best_for="Finding papers."), "Peter HIV",
     "tools/Finding papers.md"),
    (told_of("events", event_name="彼得確診HIV", event_time="2026-11-21", content="在醫院。"), "彼得确诊HIV", None),
    (told_of("notes", title="彼得的艾滋病诊断", content="结果是周一寄来的。"), "彼得 艾滋病 诊断",
     "notes/结果是周一寄来的.md"),
    (told_of("tasks", title="给彼得取艾滋病的药"), "彼得 艾滋病", None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "query", "place"), NAMED)
def test_what_the_name_of_a_memory_says_is_forgotten(
    memory: Runebook, data: dict[str, Any], query: str, place: str | None
) -> None:
    before = owned(memory)
    (uri,) = written(memory, data)
    with_it = owned(memory)
    preview, receipt = forgotten(memory, query)
    assert [result.uri for result in preview.results] == [uri]
    assert [result.action for result in receipt.results] == [Action.DELETED if place is None else Action.UPDATED]
    for result in (*preview.results, *receipt.results) if place is not None else ():
        assert "goes: its name, " in str(result.note)
        assert "; stays: " in str(result.note)
    after = owned(memory)
    assert after.keys() - before.keys() == ({place} if place is not None else set())
    assert [
        path for path, text in after.items() if any(word in path + text.casefold() for word in ("hiv", "艾滋"))
    ] == []
    assert "its name" not in str(memory.run(FORGET, ForgetRequest(query)).results)
    memory.run(UNDO, UndoRequest("last"))
    assert owned(memory) == with_it


def test_a_whole_memory_that_only_its_name_tells_of_is_shown_by_it(memory: Runebook) -> None:
    written(memory, told_of("tasks", title="Fetch HIV medication for Peter", state="open"))
    (shown,) = memory.run(FORGET, ForgetRequest("Peter HIV")).results
    assert "Fetch HIV medication for Peter" in str(shown.note)


def test_a_file_of_no_type_and_what_is_archived_get_another_name(memory: Runebook) -> None:
    by_hand(memory.store.files.root, "user/default/memories/loose/Peter HIV test.md", "Bring the red card.\n")
    away = written(memory, told_of("notes", title="Peter HIV letter", content="In the blue folder."))
    memory.run(ARCHIVE, ArchiveRequest(away))
    before = owned(memory)
    preview, receipt = forgotten(memory, "Peter HIV")
    assert (len(preview.results), receipt.status) == (2, Status.COMMITTED)
    after = owned(memory)
    assert after.keys() - before.keys() == {"loose/Bring the red card.md", "notes/In the blue folder.md"}
    assert [path for path, text in after.items() if "HIV" in path + text] == []
    memory.run(UNDO, UndoRequest("last"))
    assert owned(memory) == before


@pytest.mark.parametrize(
    ("name", "content", "query", "left"),
    [
        ("Peter", "Lives in Leeds. Likes tea.", "where Peter lives", "Likes tea."),
        ("彼得", "住在利兹。喜欢喝茶。", "彼得住在哪里", "喜欢喝茶。"),
        ("Anna Maria Schmidt", "Phone 0664 1234567. Likes tea.", "Anna Maria Schmidt phone", "Likes tea."),
        ("tea", "Likes green tea. Never drinks coffee.", "Bob's green tea", "Never drinks coffee."),
    ],
)
def test_whoever_is_asked_about_keeps_the_name(
    memory: Runebook, name: str, content: str, query: str, left: str
) -> None:
    (uri,) = written(memory, told_of("entities", entity_name=name, content=content))
    forgotten(memory, query)
    assert body(memory, uri).strip() == left


@pytest.mark.parametrize("query", ["Peter HIV", "where Peter lives", "Peter's phone number"])
def test_a_memory_stays_that_only_its_name_makes_near(memory: Runebook, query: str) -> None:
    written(
        memory,
        told_of("entities", entity_name="Peter", content="Likes tea. Plays chess."),
        told_of("tasks", title="Call Peter"),
        told_of("events", event_name="Dinner with Peter", event_time="2026-11-20", content="At the Ritz."),
        told_of("notes", ["Peter"], title="Party", content="Bring a cake."),
    )
    said(memory, "Peter is HIV positive; he lives in Leeds, his phone number is 0664 1234567.")
    before = owned(memory)
    forgotten(memory, query)
    assert owned(memory) == before


def test_the_name_of_a_talks_subject_does_not_take_what_stands_beside_it(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        (uri,) = written(memory, told_of("entities", entity_name="Peter (HIV positive)", content="Lives in Leeds."))
        memory.indexer.follow(None)
        assert memory.indexer.embedder is not None
        assert memory.indexer.embedder.ready(60.0)
        preview, _ = forgotten(memory, "Peter HIV")
        assert [(result.uri, result.action) for result in preview.results] == [(uri, Action.UPDATED)]
        assert set(owned(memory)) == {"entities/Lives in Leeds.md"}


def test_a_sentence_is_read_behind_the_name_that_introduces_it(memory: Runebook) -> None:
    (uri,) = written(memory, told_of("entities", entity_name="Peter", content="Has HIV. Plays chess with Peter's son."))
    said(memory, "Peter has HIV.")
    preview, _ = forgotten(memory, "Peter HIV")
    assert {result.uri for result in preview.results} == {uri, f"{LOG}#0"}
    assert body(memory, uri).strip() == "Plays chess with Peter's son."


def test_what_a_name_names_exactly_is_looked_for_again(memory: Runebook) -> None:
    note(memory, "Passport E12345678", "In the safe.")
    note(memory, "Desk", "The copy of E12345678 is here. The lamp is new.")
    preview, _ = forgotten(memory, "my passport")
    assert {result.uri for result in preview.results} == {f"{NOTES}/Passport E12345678.md", f"{NOTES}/Desk.md"}
    assert [path for path, text in owned(memory).items() if "E12345678" in path + text] == []


def test_the_preview_says_that_a_name_goes_with_the_sentence_that_it_was_made_of(memory: Runebook) -> None:
    note(memory, "Lin has two cats", "Lin has two cats. Lin lives in Chengdu.")
    (shown,) = memory.run(FORGET, ForgetRequest("Lin has two cats")).results
    said = 'goes: its name, "Lin has two cats" … Lin has two cats.; stays: Lin lives in Chengdu.'
    assert str(shown.note).endswith(said)


@pytest.mark.parametrize(
    ("name", "tags", "query", "kept"),
    [
        ("clinic", ["hiv-positive", "Peter"], "HIV positive", ["Peter"]),
        ("Peter", ["HIV", "Peter", "chess"], "Peter HIV", ["Peter", "chess"]),
        ("彼得", ["艾滋病", "朋友"], "彼得 艾滋病", ["朋友"]),
        ("彼得", ["艾滋病", "朋友"], "艾滋病", ["朋友"]),
        ("clinic", ["HIV"], "HIV", None),
    ],
)
def test_a_tag_that_says_it_goes(
    memory: Runebook, name: str, tags: list[str], query: str, kept: list[str] | None
) -> None:
    (uri,) = written(memory, told_of("entities", tags, entity_name=name, content="Likes tea. 喜欢喝茶。"))
    before = owned(memory)
    preview, receipt = forgotten(memory, query)
    assert [(result.uri, result.action) for result in preview.results] == [(uri, Action.UPDATED)]
    assert all(f'goes: its tag "{tags[0]}"' in str(result.note) for result in (*preview.results, *receipt.results))
    assert trailer(memory, uri).get("tags") == kept
    assert "喜欢喝茶" in body(memory, uri)
    memory.run(UNDO, UndoRequest("last"))
    assert owned(memory) == before


def test_a_tag_goes_with_the_sentence_and_from_what_no_type_or_only_the_archive_holds(memory: Runebook) -> None:
    (uri,) = written(memory, told_of("entities", ["HIV"], entity_name="Peter", content="Has HIV. Likes tea."))
    away = written(memory, told_of("notes", ["hiv"], title="Card", content="Peter has a red card."))
    memory.run(ARCHIVE, ArchiveRequest(away))
    text = 'Peter called. He wants a card.\n\n<!-- MEMORY_FIELDS\n{"tags": "HIV, phone"}\n-->\n'
    by_hand(memory.store.files.root, "user/default/memories/loose/call.md", text)
    preview, receipt = forgotten(memory, "Peter HIV")
    assert (len(preview.results), receipt.status) == (3, Status.COMMITTED)
    assert [path for path, text in owned(memory).items() if "HIV" in text or '"hiv"' in text] == []
    assert "phone" in owned(memory)["loose/call.md"]
    assert body(memory, uri).strip() == "Likes tea."


def related(memory: Runebook, one: str, other: str, relation: str = "contradicts") -> None:
    memory.run(RELATE, RelateRequest(one, other, relation))


def linked(memory: Runebook, uri: str) -> list[tuple[str, str]]:
    """The relations in the trailer of a memory's file."""
    links = (split(memory.store.text(MemoryUri.parse(uri)) or "").trailer or {}).get("links", [])
    return [(each["uri"], each["relation"]) for each in links]


def test_relations_follow_a_memory_that_gets_another_name(memory: Runebook) -> None:
    old, new = f"{NOTES}/Standup now, since Peter has HIV.md", f"{NOTES}/The standup moved to half past ten.md"
    other = f"{NOTES}/Standup.md"
    note(memory, "Standup", "The standup is at nine in room four.")
    note(memory, "Standup now, since Peter has HIV", "The standup moved to half past ten.")
    related(memory, old, other)
    before = owned(memory)
    forgotten(memory, "Peter HIV")
    assert (linked(memory, other), linked(memory, new)) == ([(new, "contradicts")], [(other, "contradicts")])
    assert [path for path, text in owned(memory).items() if "HIV" in path + text] == []
    found = {hit.uri: hit for hit in memory.find(FindRequest("standup at nine in room four")).hits}
    assert found[other].contested_by == (new,)
    memory.run(UNDO, UndoRequest("last"))
    assert owned(memory) == before


def test_relations_of_one_end_of_changed_files_and_of_the_archive_follow_a_new_name(memory: Runebook) -> None:
    old, new = f"{NOTES}/Peter HIV card.md", f"{NOTES}/It is red.md"
    hand, away = "viking://user/default/memories/loose/pin.md", f"{NOTES}/Peter HIV letter.md"
    note(memory, "Peter HIV card", "It is red.")
    note(memory, "Peter HIV letter", "It is blue.")
    note(memory, "Desk", "Peter has HIV. The desk is green.")
    related(memory, old, f"{NOTES}/Desk.md", "supports")
    related(memory, away, old, "refines")
    text = f'The pin.\n\n<!-- MEMORY_FIELDS\n{{"links": ["{old}", "{away}"]}}\n-->\n'
    by_hand(memory.store.files.root, "user/default/memories/loose/pin.md", text)
    summary = MonthSummary(month="2026-09", promoted=(Remembered("a", uri=old),)).showing({})
    place = "user/default/logs/summaries/2026-09.md"
    by_hand(memory.store.files.root, place, dump_summary(summary, "2026-10-01T00:00:00+00:00"))
    memory.run(ARCHIVE, ArchiveRequest([away]))
    memory.store.adopt()
    _, receipt = forgotten(memory, "Peter HIV")
    assert receipt.status is Status.COMMITTED
    blue = f"{NOTES}/It is blue.md"
    assert linked(memory, f"{NOTES}/Desk.md") == [(new, "supported_by")]
    assert set(linked(memory, new)) == {(f"{NOTES}/Desk.md", "supports"), (blue, "refined_by")}
    assert linked(memory, blue.replace("user", "archive/user", 1)) == [(new, "refines")]
    assert trailer(memory, hand)["links"] == [new, blue]
    assert trailer(memory, f"viking://{place}")["promoted"] == [{"name": "a", "uri": new}]
    assert [path for path, text in owned(memory).items() if "HIV" in path + text] == []


def test_so_many_relations_follow_a_new_name_as_one_commit_takes(
    memory: Runebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(memory, "Peter HIV card", "It is red.")
    for number in range(4):
        note(memory, f"n{number}", f"Number {number}.")
        related(memory, f"{NOTES}/n{number}.md", f"{NOTES}/Peter HIV card.md", "supports")
    monkeypatch.setattr(forgetting, "MOVE_WORK", 1_600_000)
    _, receipt = forgotten(memory, "Peter HIV")
    assert "relations of 2 files still have the old name" in " ".join(receipt.notes)
    followed = [linked(memory, f"{NOTES}/n{number}.md") for number in range(4)]
    assert followed.count([(f"{NOTES}/It is red.md", "supports")]) == 2


@pytest.mark.parametrize(
    "when",
    [
        *("2026-12-14", "2026-12", "14.12.2026", "12/14/2026", "14-12-2026", "2026-12-14T09:25:00+00:00", "09:25"),
        *("9:25:30", "9:25 pm", "December 14, 2026", "14th December 2026", "2026年12月14日", "十二月14号", "14点"),
        *("14点30分", "2026-12-14 09:25", "09:25-10:00", "logs/2026-12-14.md"),
    ],
)
def test_what_is_at_the_same_time_is_not_forgotten(memory: Runebook, when: str) -> None:
    note(memory, "Teeth", f"Dentist appointment: {when}")
    note(memory, "Feast", f"Otto marries: {when}")
    note(memory, "Pass", f"Due {when}")
    preview, _ = forgotten(memory, "dentist appointment")
    assert {result.uri for result in preview.results} == {f"{NOTES}/Teeth.md"}


@pytest.mark.parametrize(
    "named",
    [
        *("+49 171 2345678", "0171/2345678", "E12345678", "DE89 3704 0044 0532", "Hauptstraße 5", "长安街20号"),
        *("o.tto@example.org", "https://example.org/2026/12/14/x", "2026-47110"),
    ],
)
def test_what_names_the_same_beside_a_time_is_forgotten(memory: Runebook, named: str) -> None:
    note(memory, "Teeth", f"Dentist appointment: 2026-12-14 09:25 {named}")
    note(memory, "Feast", f"Otto marries: {named}")
    preview, _ = forgotten(memory, "dentist appointment")
    assert {result.uri for result in preview.results} == {f"{NOTES}/Teeth.md", f"{NOTES}/Feast.md"}
