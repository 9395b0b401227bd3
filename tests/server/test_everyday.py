"""The command line as a newcomer uses it: words of other programs, texts without quotes, the editor, weak matches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_core.core.memory.results import FindResult, Hit
from server.rendering import find_text
from tests.server.command_line import Run, facts, set_editor

NOTES = "viking://user/default/memories/notes"


def kept(run: Run, text: str) -> str:
    """The URI of a new memory."""
    return str(facts(run("commit", text, "--json"))["results"][0]["uri"])


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor that writes green for blue."""
    text = "file.read_text('utf-8').replace('blue', 'green').replace('蓝', '绿')"
    set_editor(tmp_path, monkeypatch, f"file.write_text({text}, 'utf-8')")


@pytest.mark.parametrize(
    ("word", "names"),
    [("delete", "runebook forget"), ("rm", "runebook purge"), ("update", "runebook edit"), ("search", "runebook find")],
)
def test_a_word_of_other_programs_is_answered_with_the_command_that_does_it(run: Run, word: str, names: str) -> None:
    status, out, err = run(word, "x")
    assert (status, out) == (2, "")
    assert names in err
    assert "All of them: runebook --help" in err


def test_words_need_no_quotes(run: Run) -> None:
    assert run("commit", "The", "key", "is", "blue")[0] == 0
    assert f"{NOTES}/The key is blue.md" in run("find", "where", "--limit", "3", "is", "the", "key")[1]
    assert run("read", *f"{NOTES}/The key is blue.md".split(" "))[1].startswith("The key is blue\n")


@pytest.mark.parametrize("words", [("a note", "and another"), ("viking://user/a", "viking://user/b")])
def test_words_of_which_it_is_not_clear_what_belongs_together_are_refused(run: Run, words: tuple[str, ...]) -> None:
    status, _, err = run("commit", *words)
    assert status == 2
    assert "put all of it in one pair of quotes" in err


def test_an_address_needs_no_scheme(run: Run) -> None:
    uri = kept(run, "茶在柜子里").removeprefix("viking://")
    assert run("read", uri)[1].startswith("茶在柜子里\n")
    assert uri in run("ls", uri.rpartition("/")[0])[1]
    assert uri in run("tree", "user", "--level-limit", "9")[1]
    assert "created" in run("history", uri)[1]
    assert run("forget", uri, "--yes")[0] == 0
    assert "must start with viking://" in run("read", "/etc/passwd")[2]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("read", "user/absent.md"), 1, "nothing at"),
        (("find", "x", "--limit", "0"), 1, "limit 0"),
        (("commit",), 1, "nothing is given"),
        (("find",), 2, "required"),
        (("delete",), 2, "no command"),
    ],
)
def test_an_error_is_json_where_json_is_asked_for(run: Run, arguments: tuple[str, ...], status: int, said: str) -> None:
    ended, out, err = run(*arguments, "--json")
    assert (ended, err) == (status, "")
    told = json.loads(out)
    assert list(told) == ["error", "hint"]
    assert said in told["error"]
    assert told["hint"]


def test_a_tree_says_how_much_is_deeper_and_how_to_see_it(run: Run) -> None:
    uri = kept(run, "Tea is in the cupboard.")
    told = run("tree")[1]
    assert uri not in told
    assert "… and 1 file on deeper levels; --level-limit 5 shows them" in told
    found = facts(run("tree", "--json"))
    assert (found["deeper"], found["levels"]) == (1, 5)
    whole = facts(run("tree", "--level-limit", "5", "--json"))
    assert uri in {entry["uri"] for entry in whole["entries"]}
    assert "deeper" not in whole
    assert "deeper" not in facts(run("ls", "--json"))


@pytest.mark.usefixtures("editor")
def test_what_was_edited_in_the_editor_is_found_and_said_to_be_by_hand(run: Run) -> None:
    uri = kept(run, "The key is blue. 钥匙是蓝色的。")
    assert run("edit", uri.removeprefix("viking://"))[0] == 0
    assert run("find", "green")[1].startswith("1 found")
    assert "by hand" in run("history", uri)[1]


@pytest.mark.usefixtures("editor")
def test_edits_of_before_are_no_part_of_an_edit(run: Run, home: Path) -> None:
    uri = kept(run, "The key is blue.")
    file = home / uri.removeprefix("viking://")
    file.write_text(file.read_text("utf-8").replace("The key", "A key"), "utf-8")
    out = run("edit", uri)[1]
    assert "-A key is blue.\n+A key is green.\n" in out
    assert out.count("runebook undo") == 1


def test_without_an_editor_the_file_is_named(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    uri = kept(run, "Tea is in the cupboard.")
    status, out, _ = run("edit", uri)
    assert status == 0
    assert str(home / uri.removeprefix("viking://")) in out
    assert "EDITOR=nano runebook edit" in out


@pytest.mark.usefixtures("editor")
@pytest.mark.parametrize(
    ("address", "said"),
    [("user/default", "is a directory"), ("user/default/memories/notes/absent.md", "there is nothing")],
)
def test_what_is_no_memory_is_not_edited(run: Run, address: str, said: str) -> None:
    kept(run, "Tea is in the cupboard.")
    status, _, err = run("edit", address)
    assert status == 1
    assert said in err


@pytest.mark.usefixtures("editor")
def test_a_conversation_is_not_edited(run: Run, tmp_path: Path) -> None:
    said = tmp_path / "talk.json"
    said.write_text('[{"role": "user", "content": "Hello"}]', encoding="utf-8")
    assert run("commit", "--messages", str(said), "--session-id", "s1")[0] == 0
    assert "kept word for word" in run("edit", "session/default/s1/messages.jsonl")[2]


def test_an_editor_that_fails_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "/nonexistent/editor")
    status, _, err = run("edit", kept(run, "Tea."))
    assert status == 1
    assert "the editor failed" in err


def test_forget_takes_an_address_as_its_query(run: Run) -> None:
    uri = kept(run, "Tea is in the cupboard.")
    other = kept(run, "Tea is in the kitchen.")
    status, out, _ = run("forget", uri, "--yes")
    assert status == 0
    assert "Undo with: runebook undo " in out
    left = run("ls", NOTES)[1]
    assert (uri in left, other in left) == (False, True)
    assert run("history", "--limit", "1")[1].rstrip().endswith("forgot notes/Tea is in the cupboard.md")


def test_what_matches_weakly_is_not_forgotten_unseen(run: Run) -> None:
    by_meaning = ("--set", "embedding.provider=bundled")
    for text in ("The key is blue.", "Roses need water.", "我对花生过敏。"):
        kept(run, text)
    assert "match weakly" in run("forget", "unicorns", *by_meaning)[1]
    status, out, err = run("forget", "unicorns", "--yes", *by_meaning)
    assert (status, out) == (1, "")
    assert "nothing was deleted" in err
    assert "deleted: " in run("forget", "key", "--yes", *by_meaning)[1]


def test_a_file_that_history_does_not_know_is_named(run: Run) -> None:
    kept(run, "Tea is in the cupboard.")
    status, _, err = run("history", f"{NOTES}/absent.md")
    assert status == 1
    assert "history knows nothing" in err
    assert run("history", NOTES)[0] == 0
    assert "+Tea is in the cupboard." in run("diff", "user/default/memories/notes/Tea is in the cupboard.md")[1]


def test_the_archive_is_listed_without_a_word(run: Run) -> None:
    assert run("archive")[1] == "Nothing is archived.\n"
    assert run("archive", "list")[1] == "Nothing is archived.\n"
    uri = kept(run, "Tea is in the cupboard.")
    assert f"- archived: {uri}" in run("archive", "add", uri.removeprefix("viking://"))[1]
    assert uri.removeprefix("viking://") in run("archive")[1]
    assert "runebook archive add URI" in run("archive", "add")[2]


def test_a_graph_without_relations_says_so(run: Run) -> None:
    assert run("graph")[1] == "No memory is there yet.\n"
    kept(run, "Tea is in the cupboard.")
    assert "runebook relate URI OTHER" in run("graph")[1]


def hit(score: float, lexical: float, semantic: float, **why: float) -> Hit:
    given = {"lexical": lexical, "semantic": semantic, **why}
    return Hit(f"viking://user/default/memories/notes/{score}.md", "memory", "notes", score, "Tea.", None, given)


def test_people_are_told_that_all_hits_are_weak() -> None:
    weak = FindResult(memories=(hit(0.08, 0.0, 0.15), hit(0.03, 0.0, 0.06)))
    assert find_text(weak, tells_weak=True).startswith("2 found, and all match weakly")
    assert "less than half" not in find_text(weak, tells_weak=True)
    assert find_text(weak).startswith("2 found:")
    for strong in (hit(0.3, 0.5, 0.1), hit(0.15, 0.0, 0.3), hit(0.08, 0.0, 0.1, date=1.0)):
        assert find_text(FindResult(memories=(strong,)), tells_weak=True).startswith("1 found:")


def test_people_are_told_where_hits_are_far_below_the_best() -> None:
    found = FindResult(memories=(hit(0.6, 1.0, 0.5), hit(0.4, 0.6, 0.4), hit(0.2, 0.3, 0.2), hit(0.1, 0.1, 0.1)))
    lines = find_text(found, tells_weak=True).splitlines()
    mark = lines.index("— from here on less than half of the first score —")
    assert [line for line in lines[mark:] if "0.2.md" in line or "0.1.md" in line] == lines[mark + 2 :: 2]
    assert "less than half" not in find_text(found)
    assert "less than half" not in find_text(FindResult(memories=found.memories[:2]), tells_weak=True)


def test_a_second_import_of_a_file_says_where_everything_is(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "notes.md"
    source.write_text("# Kitchen\n\nThe oven is broken.\n\n# 花园\n\n玫瑰要浇水。\n", encoding="utf-8")
    assert "Nothing new" not in run("import", "--project", "home", str(source))[1]
    told = run("import", "--project", "home", str(source))[1]
    assert "Nothing new: all 2 memories are here already, unchanged (project home):" in told
    assert f"  {NOTES}/Kitchen.md\n" in told
    assert f"  {NOTES}/花园.md\n" in told
    assert "--into USER/AGENT" in told
    again = facts(run("import", "--json", str(source)))
    assert again["there"] == [f"{NOTES}/Kitchen.md", f"{NOTES}/花园.md"]
    assert run("forget", f"{NOTES}/Kitchen.md", "--yes")[0] == 0
    told = run("import", "--project", "home", str(source))[1]
    assert "Nothing new: 1 memory is here already" in told
    assert "Removed or archived here since an earlier import, and not brought back: 1." in told


def test_an_import_that_leaves_something_out_does_not_say_that_all_is_here(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["Plays the organ."]}
    source.write_text(f"{json.dumps(entity)}\n{json.dumps(entity)}\n", encoding="utf-8")
    run("import", str(source))
    told = run("import", str(source))[1]
    assert "left out: " in told
    assert "Nothing new but what was left out: 1 memory is here already" in told


def test_a_second_import_of_an_export_says_that_nothing_is_new(run: Run, tmp_path: Path) -> None:
    kept(run, "Tea is in the cupboard.")
    assert run("export", str(tmp_path / "x.jsonl"))[0] == 0
    assert "Nothing new: the one file is here already" in run("import", str(tmp_path / "x.jsonl"))[1]


def test_history_names_the_file_that_an_import_brought(run: Run, tmp_path: Path) -> None:
    for name, text in (("a.md", "# Kitchen\n\nThe oven is broken.\n"), ("b.md", "# Garden\n\nRoses need water.\n")):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / name).write_text(text, encoding="utf-8")
    assert run("import", str(tmp_path / "notes"))[0] == 0
    assert run("history", f"{NOTES}/Kitchen.md")[1].rstrip().endswith("created notes/Kitchen.md from a.md")
    assert run("history")[1].rstrip().endswith("from a.md, b.md")


def test_a_pass_of_maintenance_that_failed_does_not_say_that_there_was_nothing_to_do(run: Run, home: Path) -> None:
    kept(run, "Tea is in the cupboard.")
    (home / "user/default/rolling_summary.md").write_bytes(b"\xff\xfe")
    status, out, _ = run("maintain", "--only", "rolling_summary")
    assert status == 1
    assert out.startswith("rolling_summary: nothing was done\n  stopped: ")
