"""Whatever is done in whatever order, no memory disappears that nobody removed, edited away or took back."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.errors import RunebookError
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action, CommitReceipt, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.history import HISTORY, HistoryRequest
from memory_core.features.organize import ORGANIZE, OrganizeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, RESTORE, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook, open_memory
from tests.features.moving import exported, imported
from tests.stores import added, body, by_hand, edited, edited_by_hand, handed_in, only, said, trailer, words_only, write

#: Names that meet in one file name, or fold to one, and the field that each type keeps its name in.
NAMES = ("Tea?", "Tea:", "登录", "登錄")
TYPES = {"notes": "title", "cases": "case_name"}
PROJECTS = (None, None, "a", "b", "c")
THINGS = ("tea", "coffee", "rails", "garden", "成都")
STEPS = 80


class Everyday:
    """A store on which things are done at random; each written text has a word of its own."""

    def __init__(self, memory: Runebook, seed: int) -> None:
        self.memory = memory
        self.home = memory.config.root
        self.random = random.Random(seed)
        self.words = 0
        self.alive: set[str] = set()
        self.brought: dict[str, set[str]] = {}
        self.story: list[str] = []
        self.now = datetime.now(UTC)

    def step(self) -> None:
        """Do one thing, and see that nothing else is gone."""
        acts: list[tuple[int, Callable[[], set[str]]]] = [
            (6, self.write),
            (3, self.talk),
            (2, self.edit_by_hand),
            (2, self.condense),
            (2, self.import_earlier),
            (4, self.move),
            (2, self.archive),
            (2, self.restore),
            (2, self.undo),
            (1, self.delete),
            (1, self.rename_by_hand),
        ]
        act = self.random.choices([each for _, each in acts], [weight for weight, _ in acts])[0]
        try:
            going = act()
        except RunebookError as error:
            self.story.append(f"refused: {error.message}")
            going = set()
        logs = [path for path in self.home.glob("*/**/*.jsonl") if path.parts[len(self.home.parts)][0] != "."]
        there = {word for path in (*self.files(), *logs) for word in self.words_in(path)}
        assert self.alive - going <= there, "\n".join(self.story)
        self.alive &= there

    def files(self, scope: str = "*") -> list[Path]:
        """Memories of a scope, archived ones among them, in their order."""
        return sorted(path for path in self.home.glob(f"{scope}/**/memories/**/*.md") if path.name[0] != ".")

    def one_of(self, *scopes: str) -> Path | None:
        """Any memory of these scopes."""
        found = [path for scope in scopes for path in self.files(scope)]
        return self.random.choice(found) if found else None

    def uri(self, path: Path) -> str:
        return f"viking://{path.relative_to(self.home).as_posix()}"

    def words_in(self, path: Path) -> set[str]:
        return set(re.findall(r"word\d+", path.read_text(encoding="utf-8")))

    def done(self, receipt: CommitReceipt, *words: str) -> None:
        """Note a commit; what it stored is there from now on."""
        self.story += [f"{result.op} {result.uri}: {result.action} {result.reason or ''}" for result in receipt.results]
        stored = all(result.action is not Action.REJECTED and not result.reason for result in receipt.results)
        self.brought[receipt.commit_id] = set(words) if stored else set()
        self.alive |= self.brought[receipt.commit_id]

    def word(self) -> str:
        """A word that stands nowhere."""
        self.words += 1
        return f"word{self.words}"

    def write(self) -> set[str]:
        """A plain commit, or a write of a model, here or in the space that is shared."""
        word, (memory_type, name) = self.word(), self.random.choice(list(TYPES.items()))
        fields = {name: self.random.choice(NAMES), "content": f"There is {word}."}
        project = self.random.choice(PROJECTS)
        if self.random.random() < 0.7:
            space = "team" if project is None and self.random.random() < 0.5 else None
            given = CommitRequest(memory_type=memory_type, fields=fields, project=project, space=space)
            self.done(self.memory.commit(given), word)
        else:
            self.done(handed_in(self.memory, write=[write(memory_type, **fields)], project=project), word)
        return set()

    def talk(self) -> set[str]:
        """A conversation goes on."""
        words = [self.word() for _ in range(self.random.randrange(1, 7))]
        told = [f"About {word}: {' '.join(self.random.choices(THINGS, k=12))}." for word in words]
        space = self.random.choice(["team", None])
        self.done(said(self.memory, *told, session_id=self.random.choice(["s1", "s2"]), space=space), *words)
        return set()

    def edit_by_hand(self) -> set[str]:
        """A person adds a word, and perhaps nothing notices it yet."""
        if (path := self.one_of("user", "agent")) is not None:
            word, text = self.word(), path.read_text(encoding="utf-8")
            path.write_text(text.replace("There is", f"There is {word}. There is", 1), encoding="utf-8")
            self.alive |= self.words_in(path)
            if self.random.random() < 0.5:
                self.memory.store.adopt()
            self.story.append(f"edited by hand: {path.name} {word}")
        return set()

    def condense(self) -> set[str]:
        """Maintenance, some time later."""
        self.now += timedelta(days=self.random.choice([0, 8, 40, 100]))
        done = list(self.memory.run(MAINTAIN, MaintainRequest(now=self.now)))
        self.story += [f"maintained: {each}" for each in done if each.receipts]
        return set()

    def import_earlier(self) -> set[str]:
        """What was exported earlier comes back, or a first export is made."""
        path = self.home.parent / "earlier.zip"
        if not path.exists():
            exported(self.memory, path)
            return set()
        done = imported(self.memory, path, self.random.choice(["keep", "both"]))
        self.story += [f"imported: {line}" for line in done.lines()]
        return set()

    def move(self) -> set[str]:
        """A memory goes to another project."""
        if (path := self.one_of("user", "agent")) is not None:
            project = self.random.choice(["a", "b", "c", "global"])
            self.done(self.memory.run(ORGANIZE, OrganizeRequest([self.uri(path)], project=project)))
        return set()

    def archive(self) -> set[str]:
        if (path := self.one_of("user", "agent")) is not None:
            self.done(self.memory.run(ARCHIVE, ArchiveRequest([self.uri(path)])))
        return set()

    def restore(self) -> set[str]:
        if (path := self.one_of("archive")) is not None:
            self.done(self.memory.run(RESTORE, ArchiveRequest([self.uri(path)])))
        return set()

    def undo(self) -> set[str]:
        """Any commit is taken back; what it had brought goes."""
        if not self.brought:
            return set()
        commit, going = self.random.choice(list(self.brought.items()))
        self.done(self.memory.run(UNDO, UndoRequest(commit)))
        return going

    def delete(self) -> set[str]:
        path = self.one_of("user", "agent")
        if path is None:
            return set()
        going = self.words_in(path)
        self.done(handed_in(self.memory, delete=[{"uri": self.uri(path)}]))
        return going

    def rename_by_hand(self) -> set[str]:
        if (path := self.one_of("user", "agent")) is not None:
            place = path.with_name(self.random.choice(["Tea-.md", "茶.md"]))
            if place.name.casefold() not in {each.name.casefold() for each in path.parent.iterdir()}:
                path.rename(place)
                self.story.append(f"renamed by hand: {path.name} to {place.name}")
        return set()


@pytest.mark.parametrize("seed", range(12))
def test_what_nobody_removed_is_there_after_eighty_steps_of_any_kind(tmp_path: Path, seed: int) -> None:
    with open_memory(words_only(tmp_path / "store")) as owner:
        everyday = Everyday(owner.view(shared=[SharedSpace("team")]), seed)
        for _ in range(STEPS):
            everyday.step()
        assert everyday.alive


PLAIN_TYPE = """
name: recipes
description: Dishes.
directory: viking://user/{user_space}/memories/recipes
filename_template: "{dish}.md"
fields:
  - {name: dish, merge_op: immutable}
  - {name: content, merge_op: patch}
"""
RENDERED_TYPE = f"""{PLAIN_TYPE}
content_template: "# {{dish}}\\n\\n{{content}}\\n"
"""


def test_what_a_body_corrected_by_hand_does_not_show_is_found_and_forgotten_and_outlasts_the_template(
    tmp_path: Path,
) -> None:
    config = words_only(tmp_path / "home", schema_dirs=(tmp_path / "types",))
    by_hand(tmp_path, "types/recipes.yaml", RENDERED_TYPE)
    with open_memory(config) as memory:
        uri = only(added(memory, "recipes", "Mash three bananas.", dish="Bread")).uri
        edited_by_hand(memory, uri, "# Bread\n\nMash three", "# Bread\n\nMash ripe")
        added(memory, "recipes", "Rex must not eat the walnuts.", dish="Bread")
        assert [hit.uri for hit in memory.find(FindRequest("walnuts Rex")).memories] == [uri]
        assert "walnuts" in memory.retrieve(RetrieveRequest("Rex, Bread")).text
        found = memory.run(FORGET, ForgetRequest(query="Rex must not eat the walnuts."))
        assert [place.uri for place in found.results] == [uri]
    by_hand(tmp_path, "types/recipes.yaml", PLAIN_TYPE)
    with open_memory(config) as memory:
        memory.run(ORGANIZE, OrganizeRequest([uri], pinned=True))
        assert body(memory, uri).startswith("# Bread\n\nMash ripe bananas.")
        assert body(memory, uri).rstrip().endswith("Rex must not eat the walnuts.")
        assert [hit.uri for hit in memory.find(FindRequest("walnuts Rex")).memories] == [uri]


def test_content_that_somebody_wrote_into_a_trailer_stays_there(tmp_path: Path) -> None:
    written = '<!-- MEMORY_FIELDS\n{"title": "one", "content": "Shown.\\n\\nHidden zebra."}\n-->\n'
    with open_memory(words_only(tmp_path)) as memory:
        by_hand(tmp_path, "user/default/memories/notes/one.md", f"Shown.\n\n{written}")
        uri = "viking://user/default/memories/notes/one.md"
        memory.run(ORGANIZE, OrganizeRequest([uri], pinned=True))
        assert (body(memory, uri).strip(), trailer(memory, uri)["content"]) == ("Shown.", "Shown.\n\nHidden zebra.")


CORRECTED = [
    ("cases", {"case_name": "Flood", "problem": "The cellar is wet.", "solution": "Open valve seven fully."}),
    ("tools", {"tool_name": "saw", "best_for": "Cutting wood.", "recommendation": "Open valve seven fully."}),
    ("recipes", {"dish": "Bread", "content": "Open valve seven fully."}),
]


@pytest.mark.parametrize(("memory_type", "fields"), CORRECTED, ids=lambda each: str(each)[:8])
@pytest.mark.parametrize("now", ["NEVER open it.", ""])
def test_what_a_person_corrected_in_the_text_is_not_told_or_written_again(
    tmp_path: Path, memory_type: str, fields: dict[str, str], now: str
) -> None:
    by_hand(tmp_path, "types/recipes.yaml", RENDERED_TYPE)
    with open_memory(words_only(tmp_path / "home", schema_dirs=(tmp_path / "types",))) as memory:
        uri = only(memory.commit(CommitRequest(memory_type=memory_type, fields=fields))).uri
        corrected(memory, uri, "Open valve seven fully.", now)
        for _ in range(2):
            assert not memory.find(FindRequest("valve seven")).memories
            assert (
                "valve seven fully" not in memory.retrieve(RetrieveRequest(f"{fields[next(iter(fields))]} valve")).text
            )
            memory.run(ORGANIZE, OrganizeRequest([uri], pinned=True))
        name, said = next(iter(fields)), list(fields)[-1]
        memory.commit(CommitRequest(memory_type=memory_type, fields={name: fields[name], said: "Tell Maria about it."}))
        assert "Tell Maria" in memory.retrieve(RetrieveRequest(f"{fields[name]} Maria")).text
        assert not memory.find(FindRequest("valve seven")).memories
        assert "valve seven fully" not in memory.read(ReadRequest(uri)).content
    by_hand(tmp_path, "types/recipes.yaml", PLAIN_TYPE)
    with open_memory(words_only(tmp_path / "home", schema_dirs=(tmp_path / "types",))) as memory:
        memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))
        assert "valve seven fully" not in body(memory, uri)


@pytest.mark.parametrize(
    ("memory_type", "fields", "old", "new"),
    [
        ("cases", CORRECTED[0][1], "Open valve", "NEVER do this, it floods: Open valve"),
        ("tools", {"tool_name": "saw", "best_for": "Wood", "recommendation": "Use sudo"}, "Use sudo", "No sudo"),
    ],
)
def test_a_correction_within_a_line_or_of_a_short_text_is_told_alone(
    tmp_path: Path, memory_type: str, fields: dict[str, str], old: str, new: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(memory.commit(CommitRequest(memory_type=memory_type, fields=fields))).uri
        file = memory.store.files.path_for(MemoryUri.parse(uri))
        file.write_text(file.read_text("utf-8").replace(old, new, 1).replace("\n", "\r\n"), "utf-8", newline="")
        told = memory.retrieve(RetrieveRequest(" ".join(fields.values()))).text.partition("<current_input>")[0]
        assert told.count(new) == 1
        assert told.replace(new, "").count(old) == 0


def test_a_rendered_text_of_an_older_program_that_was_corrected_is_told_alone(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        fields = {"tool_name": "saw", "best_for": "Wood", "recommendation": "Log in with sudo first"}
        uri = only(memory.commit(CommitRequest(memory_type="tools", fields=fields))).uri
        file = memory.store.files.path_for(MemoryUri.parse(uri))
        text, _, block = file.read_text("utf-8").partition("<!--")
        older = re.sub(r',\n  "shown_fields": \{[^}]*\}', "", block)
        file.write_text(text.replace("Log in with sudo", "NEVER use sudo") + "<!--" + older, "utf-8")
        memory.commit(CommitRequest(memory_type="tools", fields={"tool_name": "saw", "total_calls": 1}))
        told = memory.retrieve(RetrieveRequest("saw wood sudo")).text
        assert "NEVER use sudo" in told
        assert "Log in with sudo" not in told


def test_what_is_forgotten_leaves_the_content_that_somebody_wrote_into_a_trailer_too(tmp_path: Path) -> None:
    written = '{"title": "one", "content": "Otto Lang made it ill. Older."}'
    with open_memory(words_only(tmp_path)) as memory:
        file = by_hand(
            tmp_path,
            "user/default/memories/notes/one.md",
            f"Otto Lang made it ill. Serve it cold.\n\n<!-- MEMORY_FIELDS\n{written}\n-->\n",
        )
        for confirm in (None, 1):
            memory.run(FORGET, ForgetRequest(query="Otto Lang made it ill", confirm=confirm))
        assert "Otto" not in file.read_text("utf-8")
        assert "Older." in file.read_text("utf-8")


SOLUTION = "Call Anna at once."
DIGEST = text_sha256(SOLUTION)[:8]


@pytest.mark.parametrize(
    "shown",
    [
        '"case_name"',
        "[]",
        '["solution"]',
        "null",
        '{"solution": {}, "x": []}',
        f'{{"solution": "{DIGEST}", "5": null}}',
    ],
)
def test_whatever_a_hand_edit_leaves_of_the_fields_that_were_shown_a_memory_is_read(tmp_path: Path, shown: str) -> None:
    block = f'{{"case_name": "Flood", "solution": "{SOLUTION}", "shown_fields": {shown}}}'
    by_hand(tmp_path, "agent/default/memories/cases/Flood.md", f"Wet.\n\n<!-- MEMORY_FIELDS\n{block}\n-->\n")
    with open_memory(words_only(tmp_path)) as memory:
        assert bool(memory.find(FindRequest("Anna")).memories) is (DIGEST not in shown)
        assert memory.find(FindRequest("Flood")).memories


TOOL = {"tool_name": "query", "best_for": "Wood. Ask Otto first.", "recommendation": "Open valve seven."}


def corrected(memory: Runebook, uri: str, old: str, new: str) -> None:
    """Let a person exchange words of a memory's body."""
    file = memory.store.files.path_for(MemoryUri.parse(uri))
    text, mark, rest = file.read_text(encoding="utf-8").partition("<!--")
    assert old in text
    file.write_text(text.replace(old, new) + mark + rest, encoding="utf-8")


def told(memory: Runebook, about: str) -> str:
    """What an agent is told about something."""
    return memory.retrieve(RetrieveRequest(about)).text.partition("<current_input>")[0]


@pytest.mark.parametrize("way", ["edit", "forget"])
@pytest.mark.parametrize(
    ("memory_type", "fields", "more"),
    [
        ("tools", TOOL, {"total_calls": 1}),
        ("cases", {"case_name": "query", "problem": "Wood. Ask Otto first.", "solution": "Open valve seven."}, {}),
        (
            "cases",
            {"case_name": "query", "solution": "Open valve seven.", "content": "Wet in May. Wood. Ask Otto first."},
            {},
        ),
    ],
    ids=["rendered", "composed", "written"],
)
def test_an_undo_brings_back_the_text_and_takes_no_other_after_something_was_written_between(
    tmp_path: Path, memory_type: str, fields: dict[str, str], more: dict[str, int], way: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, memory_type, **fields)).uri
        (name,) = [name for name, value in fields.items() if "Otto" in value]
        if way == "edit":
            changed = fields[name].replace("Ask Otto first.", "Open valve seven. Ask nobody else at all.")
            edit = {"edit_operations": [{"uri": uri, "patches": {name: changed}}]}
            commit_id = memory.commit(CommitRequest(operations=edit)).commit_id
        else:
            for confirm in (None, 1):
                commit_id = memory.run(FORGET, ForgetRequest(query="Ask Otto first", confirm=confirm)).commit_id
        assert "Otto" not in told(memory, "query wood")
        memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))
        if more:
            added(memory, memory_type, **{"tool_name": "query", **more})
        memory.run(UNDO, UndoRequest(commit_id))
        for _ in range(2):
            assert "Ask Otto first." in told(memory, "query wood")
            assert "Open valve seven." in told(memory, "query wood")
            assert "nobody" not in told(memory, "query wood")
            memory.run(ORGANIZE, OrganizeRequest([uri], tags=["y"]))
            added(memory, memory_type, **({"tool_name": "query", **more} if more else {**fields, "problem": "More."}))
        corrected(memory, uri, "Ask Otto first.", "")
        assert "Otto" not in told(memory, "query wood")


@pytest.mark.parametrize("way", ["by hand", "undo"])
def test_a_line_that_a_person_puts_back_stays_when_the_program_counts(tmp_path: Path, way: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "tools", **TOOL)).uri
        corrected(memory, uri, "Open valve seven.", "Open nothing.")
        assert "Open nothing." in told(memory, "query")
        newest = taken_in(memory)
        memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))
        if way == "undo":
            memory.run(UNDO, UndoRequest(newest))
        else:
            corrected(memory, uri, "Open nothing.", "Open valve seven.")
        for _ in range(2):
            added(memory, "tools", tool_name="query", total_calls=1)
            assert "Open valve seven." in body(memory, uri)
            assert "Open valve seven." in told(memory, "query")


@pytest.mark.parametrize(
    ("memory_type", "fields", "old", "new", "kept"),
    [
        ("tasks", {"title": "Rent", "due_date": "2026-12-01"}, "Pay by 2026-12-01.", "Pay by the first.", "2026-12-01"),
        ("tasks", {"title": "Wall", "state": "in progress"}, "It is in progress.", "It is half done.", "in progress"),
        ("entities", {"entity_name": "灯塔", "entity_type": "开源软件"}, "写的开源软件。", "写的软件。", "开源软件"),
    ],
)
def test_a_text_that_a_person_rewords_keeps_the_labels_beside_it(
    tmp_path: Path, memory_type: str, fields: dict[str, str], old: str, new: str, kept: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, memory_type, old, **fields)).uri
        corrected(memory, uri, old, new)
        for _ in range(2):
            assert kept in trailer(memory, uri).values()
            assert f": {kept}" in told(memory, f"{next(iter(fields.values()))} {new}")
            memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))


LINES = "1. Oil the hinges of it.\n2. Plane the lower edge.\n3. Paint it anew.\n4. The password is swordfish."


def taken_in(memory: Runebook) -> str:
    """The commit by which what a person did is taken in."""
    memory.store.adopt(memory.spaces)
    newest: str = memory.run(HISTORY, HistoryRequest())[0].commit_id
    return newest


@pytest.mark.parametrize("way", ["by hand", "forget"])
@pytest.mark.parametrize(
    ("memory_type", "fields"),
    [
        ("tools", {"tool_name": "gate", "guidelines": LINES}),
        ("cases", {"case_name": "gate", "problem": "It squeaks in winter.", "solution": LINES}),
    ],
    ids=["rendered", "composed"],
)
def test_the_undo_of_a_correction_brings_nothing_back_that_went_since(
    tmp_path: Path, memory_type: str, fields: dict[str, str], way: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, memory_type, **fields)).uri
        corrected(memory, uri, "Oil the hinges", "Grease the hinges")
        first = taken_in(memory)
        if way == "forget":
            for confirm in (None, 1):
                memory.run(FORGET, ForgetRequest(query="password swordfish", confirm=confirm))
        else:
            corrected(memory, uri, "\n4. The password is swordfish.", "")
            taken_in(memory)
        assert memory.run(UNDO, UndoRequest(first)).status == "committed"
        for _ in range(2):
            assert "Oil the hinges" in told(memory, "gate hinges")
            assert "swordfish" not in told(memory, "gate password")
            assert "swordfish" not in memory.read(ReadRequest(uri)).content
            added(memory, memory_type, **{**fields, [*fields][-1]: "Call Otto at night."})
            assert "Call Otto" in told(memory, "gate Otto")


@pytest.mark.parametrize("way", ["undo", "by hand"])
def test_words_of_a_person_come_back_into_a_rendered_text_and_leave_it_again(tmp_path: Path, way: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "tools", **TOOL, total_calls=1)).uri
        corrected(memory, uri, "Open valve seven.", "NEVER open any.")
        first = taken_in(memory)
        if way == "undo":
            back = memory.run(UNDO, UndoRequest(first)).commit_id
        else:
            corrected(memory, uri, "NEVER open any.", "Open valve seven.")
            back = taken_in(memory)
        added(memory, "tools", tool_name="query", total_calls=1)
        assert "Based on 2" in body(memory, uri)
        again = memory.run(UNDO, UndoRequest(back)).commit_id
        assert "NEVER open any." in told(memory, "query valve")
        assert "Open valve seven." not in told(memory, "query valve")
        added(memory, "tools", tool_name="query", total_calls=1)
        memory.run(UNDO, UndoRequest(again))
        assert "Open valve seven." in told(memory, "query valve")
        added(memory, "tools", tool_name="query", total_calls=1)
        assert "Based on 4" in body(memory, uri)
        assert "NEVER" not in memory.read(ReadRequest(uri)).content


def test_beside_a_text_that_a_person_edited_is_told_what_was_written_since(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "tools", **TOOL)).uri
        corrected(memory, uri, "Open valve seven.", "Open none.")
        added(memory, "tools", tool_name="query", best_for="Stone at night.")
        corrected(memory, uri, "Ask Otto first.", "NEVER ask Otto.")
        for _ in range(2):
            said = told(memory, "query wood stone")
            assert all(said.count(each) == 1 for each in ("Wood.", "NEVER ask Otto.", "Stone at night.", "Open none."))
            assert "Ask Otto first." not in said
            memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))


def test_a_solution_of_one_word_that_a_person_corrected_is_not_told_again(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "cases", case_name="Router", problem="It hangs at night.", solution="Reboot.")).uri
        corrected(memory, uri, "Reboot.", "Never touch it.")
        assert "Reboot" not in told(memory, "Router hangs")


@pytest.mark.parametrize(("memory_type", "fields"), CORRECTED[:2], ids=["cases", "tools"])
def test_a_field_that_a_person_changes_in_the_trailer_is_kept(
    tmp_path: Path, memory_type: str, fields: dict[str, str]
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, memory_type, **fields)).uri
        file = memory.store.files.path_for(MemoryUri.parse(uri))
        text, mark, rest = file.read_text(encoding="utf-8").partition("<!--")
        file.write_text(text + mark + rest.replace("Open valve seven", "Open valve nine"), encoding="utf-8")
        name = next(iter(fields.values()))
        assert "Open valve nine" in told(memory, f"{name} valve")
        assert "Open valve seven" not in told(memory, f"{name} valve")
        first = fields[[*fields][1]]
        corrected(memory, uri, first, "It is dry.")
        assert "Open valve seven" not in told(memory, f"{name} valve")
        for _ in range(2):
            assert "Open valve nine" in told(memory, f"{name} valve")
            assert first not in told(memory, name)
            added(memory, memory_type, **{**fields, [*fields][1]: "Call Otto at night."})
            assert "Open valve nine" in told(memory, f"{name} valve")


def test_what_an_agent_repeats_of_a_text_that_a_person_edited_is_not_told_again(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "tools", **TOOL, static_desc="Runs queries for patient Peter Zweig.")).uri
        corrected(memory, uri, "Ask Otto first.", "Ask nobody.")
        repeated = {
            "static_desc": "Runs queries for patient Peter Zweig. 请先问奥托再说。",
            "recommendation": "Open valve seven.",
        }
        added(memory, "tools", tool_name="query", **repeated)
        corrected(memory, uri, "Runs queries for patient Peter Zweig.", "Runs queries.")
        for _ in range(2):
            said = told(memory, "query zebras patient")
            assert "Zweig" not in said
            assert "请先问奥托再说。" in said
            memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))


@pytest.mark.parametrize(
    ("memory_type", "fields"),
    [
        (
            "cases",
            {"case_name": "Flood", "solution": "Konrad told the swordfish password.", "content": "A wet cellar."},
        ),
        ("tools", {"tool_name": "saw", "recommendation": "Konrad told the swordfish password. Use gloves."}),
    ],
)
def test_fields_of_what_is_archived_are_forgotten_too(tmp_path: Path, memory_type: str, fields: dict[str, str]) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, memory_type, **fields)).uri
        memory.run(ARCHIVE, ArchiveRequest([uri]))
        preview = memory.run(FORGET, ForgetRequest(query="Konrad swordfish password"))
        assert len(preview.results) == 1
        assert memory.run(FORGET, ForgetRequest(query="Konrad swordfish password", confirm=1)).status == "committed"
        memory.run(RESTORE, ArchiveRequest([preview.results[0].uri]))
        assert "swordfish" not in memory.read(ReadRequest(uri)).content


@pytest.mark.parametrize(
    ("body_says", "agent_says"),
    [
        ("Heat the oven to 2000 degrees first.", "Heat the oven to 200"),
        ("Never run vacuum on the walnut table.", "run vacuum on the walnut table."),
        ("不要在夜里删除核桃表。", "在夜里删除核桃表。"),
    ],
)
def test_what_an_agent_says_beside_an_edited_text_that_only_holds_its_letters_is_told(
    tmp_path: Path, body_says: str, agent_says: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "tools", **TOOL, guidelines=body_says)).uri
        corrected(memory, uri, "Ask Otto first.", "Ask nobody.")
        added(memory, "tools", tool_name="query", recommendation=agent_says)
        assert f": {agent_says}" in told(memory, "query oven vacuum table 核桃")


@pytest.mark.parametrize("now", ['"Use nothing."', "null"])
def test_a_field_changed_in_the_trailer_counts_after_a_tag_too(tmp_path: Path, now: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        uri = only(added(memory, "tools", **TOOL)).uri
        file = memory.store.files.path_for(MemoryUri.parse(uri))
        text, mark, rest = file.read_text(encoding="utf-8").partition("<!--")
        file.write_text(text + mark + rest.replace('"Open valve seven."', now), encoding="utf-8")
        assert "Open valve seven." not in told(memory, "query valve")
        memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))
        added(memory, "tools", tool_name="query", total_calls=1)
        assert "Based on 1" in body(memory, uri)
        assert ("Use nothing." in body(memory, uri)) is (now != "null")
        assert "Open valve seven." not in memory.read(ReadRequest(uri)).content


def test_what_an_agent_says_is_told_beside_a_label_or_a_quotation_that_says_the_contrary(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        fields = {"tool_name": "oven", "best_for": "Bread.", "static_desc": "It bakes."}
        uri = only(memory.commit(CommitRequest(memory_type="tools", fields=fields))).uri
        corrected(memory, uri, "Best for: Bread.", 'Avoid: Clean it at night.\n"Heat it to 200." is wrong, Otto says.')
        agents = {"best_for": "Clean it at night.", "recommendation": "Heat it to 200.", "static_desc": "It bakes."}
        memory.commit(CommitRequest(memory_type="tools", fields={"tool_name": "oven", **agents}))
        said = told(memory, "oven")
        assert "best_for: Clean it at night." in said
        assert "recommendation: Heat it to 200." in said
        assert said.count("It bakes.") == 1  # the template's own label and quotes are around it


def solved(memory: Runebook, uri: str, solution: str) -> None:
    """Let an agent write another solution of a case."""
    edited(memory, uri, {"patches": {"solution": solution}})


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        (None, "Reboot it", "Never: Reboot it"),
        ("It is offline.\n- **Solution:** Reboot it twice slowly.", "Solution:", "Wrong:"),
        ("路由器断线。解决方案：Reboot it twice slowly.", "解决方案", "错误做法"),
    ],
)
def test_another_solution_does_not_go_behind_a_label_that_a_person_changed(
    tmp_path: Path, content: str | None, old: str, new: str
) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        fields = {"case_name": "router", "solution": "Reboot it twice slowly."} | (
            {"content": content} if content else {}
        )
        uri = only(memory.commit(CommitRequest(memory_type="cases", fields=fields))).uri
        corrected(memory, uri, old, new)
        solved(memory, uri, "Unplug the cable first.")
        said = told(memory, "router")
        assert (content or "Reboot it twice slowly.").replace(old, new) in said
        assert "solution: Unplug the cable first." in said


def test_another_solution_takes_the_place_of_the_one_before_where_a_person_changed_other_words(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        content = "路由器断线。解决方案：重启路由器两次。"
        fields = {"case_name": "router", "solution": "重启路由器两次。", "content": content}
        uri = only(memory.commit(CommitRequest(memory_type="cases", fields=fields))).uri
        corrected(memory, uri, "断线", "经常断线")
        solved(memory, uri, "拔掉网线等十秒。")
        assert "路由器经常断线。解决方案：拔掉网线等十秒。" in told(memory, "router")


@pytest.mark.parametrize("content", ["{problem}\n\n{solution}", '- Seen: "{problem}"\n- **Done:** “{solution}”'])
def test_two_texts_that_a_person_exchanges_in_the_trailer_change_places(tmp_path: Path, content: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        texts = {"problem": "Open the valve now.", "solution": "Close the valve at once."}
        fields = {"case_name": "Flood", **texts, "content": content.format(**texts)}
        uri = only(memory.commit(CommitRequest(memory_type="cases", fields=fields))).uri
        file = memory.store.files.path_for(MemoryUri.parse(uri))
        body, mark, rest = file.read_text("utf-8").partition("<!--")
        exchanged = dict(zip(texts.values(), reversed(texts.values()), strict=True))
        rest = re.sub("|".join(map(re.escape, exchanged)), lambda found: exchanged[found[0]], rest)
        file.write_text(body + mark + rest, "utf-8")
        for _ in range(2):
            said = told(memory, "Flood")
            assert content.format(problem=texts["solution"], solution=texts["problem"]) in said
            assert [said.count(text) for text in exchanged] == [1, 1]
            memory.run(ORGANIZE, OrganizeRequest([uri], tags=["x"]))
