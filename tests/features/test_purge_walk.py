"""Random walks of everyday steps: a purge leaves nothing of what it names, and everything of all else."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from pathlib import Path

import pytest

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action, CommitReceipt
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, RESTORE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import edited, note, only, words_only

NAMES = ("gate", "tea", "港口", "plan")
STEPS = (
    "create",
    "create",
    "edit",
    "edit",
    "delete",
    "undo",
    "archive",
    "restore",
    "rename",
    "away",
    "purge",
    "commit",
)


class Walk:
    """A store whose memories say which they are in each version: ``memory3v2`` is the third one, edited twice."""

    def __init__(self, memory: Runebook, seed: int) -> None:
        self.memory, self.random = memory, random.Random(seed)
        self.versions: list[int] = []
        self.commits: list[str] = []
        self.told: dict[str, str] = {}
        self.ended: dict[str, str] = {}
        self.log: list[str] = []

    @property
    def here(self) -> dict[str, str]:
        """Which memory is where, in use or archived."""
        root = self.memory.config.root
        paths = [path for place in ("user", "archive") for path in (root / place).rglob("memories/notes/*.md")]
        names = [path for path in paths if not path.name.startswith(".")]
        return {
            f"viking://{path.relative_to(root)}": re.findall(r"memory\d+v", path.read_text("utf-8"))[0]
            for path in sorted(names)
        }

    @property
    def known(self) -> set[str]:
        """The versions of which history holds the text."""
        rows = self.memory.store.ledger.database.connection().execute("SELECT before, after FROM changes").fetchall()
        return set(re.findall(r"memory\d+v\d+", str(rows)))

    def step(self) -> None:
        before = self.here
        what = self.random.choice(STEPS)
        used = [uri for uri in before if "//archive/" not in uri]
        away = [uri for uri in before if "//archive/" in uri]
        if what == "create":
            name, text = self.random.choice(NAMES), f"memory{len(self.versions) + 1}v0"
            if only(note(self.memory, name, text, dry_run=True)).action is Action.CREATED:
                self.versions.append(0)
                self.keep(note(self.memory, name, text), text)
        elif what == "undo" and self.commits:
            with suppress(InvalidInput):  # it was undone before
                self.keep(self.memory.run(UNDO, UndoRequest(self.random.choice(self.commits[-8:]))))
        elif what == "restore" and away:
            self.keep(self.memory.run(RESTORE, ArchiveRequest([self.random.choice(away)])))
        elif what == "purge" and before:
            self.purge(self.random.choice(sorted(before)))
        elif what == "commit" and self.told:
            self.purge_commit(self.random.choice(list(self.told)[-6:]))
        elif used:
            self.change(what, self.random.choice(used), before)
        self.log.append(what)
        now = self.here.values()
        self.ended |= {which: uri for uri, which in before.items() if which not in now}
        self.ended = {which: uri for which, uri in self.ended.items() if which not in now}

    def change(self, what: str, uri: str, before: dict[str, str]) -> None:
        path = self.memory.store.files.path_for(MemoryUri.parse(uri))
        number = int(before[uri][6:-1]) - 1
        if what == "edit":
            self.versions[number] += 1
            text = f"{before[uri]}{self.versions[number]}"
            self.keep(edited(self.memory, uri, {"patches": {"content": text}}), text)
        elif what == "delete":
            self.keep(self.memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]})))
        elif what == "archive":
            self.keep(self.memory.run(ARCHIVE, ArchiveRequest([uri])))
        elif what == "rename":
            other = path.with_name(f"{self.random.choice(NAMES)}.md")
            if not other.exists():
                path.rename(other)
                self.adopt()
        elif what == "away":
            text = path.read_text("utf-8")
            path.unlink()
            self.memory.store.adopt()
            path.write_text(text, "utf-8")
            self.memory.store.adopt()

    def keep(self, receipt: CommitReceipt, text: str = "") -> None:
        if receipt.commit_id:
            self.commits.append(receipt.commit_id)
            self.told |= {receipt.commit_id: text} if text else {}

    def adopt(self) -> None:
        self.memory.store.adopt()
        self.commits.append(self.memory.store.ledger.history(limit=1)[0].commit_id)

    def purge(self, uri: str) -> None:
        ended = {which for which, place in self.ended.items() if place == uri}
        receipt = self.purge_one(uri, {self.here[uri]})
        if any("which the same command erases" in told for told in receipt.notes):
            self.purge_one(uri, ended)

    def purge_one(self, uri: str, gone: set[str]) -> CommitReceipt:
        known = self.known
        receipt = self.memory.run(PURGE, PurgeRequest(uri))
        assert self.known == {each for each in known if f"{each.partition('v')[0]}v" not in gone}, self.log
        return receipt

    def purge_commit(self, commit: str) -> None:
        known, version = self.known, self.told.pop(commit)
        which, _, number = version.partition("v")
        try:
            self.memory.run(PURGE, PurgeRequest(commit=commit))
        except InvalidInput:  # it cannot go back
            assert self.known == known, self.log
            return
        assert version not in self.known, self.log
        later = {f"{which}v{at}" for at in range(int(number), self.versions[int(which[6:]) - 1] + 1)}
        assert known - later <= self.known, self.log


@pytest.mark.parametrize("seed", range(8))
def test_a_purge_leaves_nothing_of_what_it_names_and_everything_of_all_else(tmp_path: Path, seed: int) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        walk = Walk(memory, seed)
        for _ in range(60):
            walk.step()
            if len(set(walk.here.values())) < len(walk.here):  # an undo brought back what lives elsewhere
                break
