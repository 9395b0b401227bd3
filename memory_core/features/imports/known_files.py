"""Which file of an earlier import a file is.

Where ids mean something only within a file (the headings of a Markdown file, the names of a knowledge graph), two
files of one name in different folders are two files. A file is known by its path on its machine. Where that says
nothing (an upload, an archive, a folder that moved and left nothing in its old place) what came from it must be most
of what stands there now, and clearly more than for any other file. In doubt it is another file: its memories come
beside those that are there. Reads the ledger, and whether a path is still there.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.text_diff import edits
from memory_core.features.imports.items import MemoryItem, digest_of

if TYPE_CHECKING:
    from memory_core.core.store.ledger import Ledger
    from memory_core.features.imports.import_plan import EarlierImports, Mark
    from memory_core.features.imports.sources import Entry

#: Of the words of both, so many in common make two texts one file, and so much more than of any other file.
_SAME_SHARE, _CLEARLY = 0.5, 0.1
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_NOTE = "imported from file "
#: Told apart by ids that were the same in every folder; what versions before 0.2 brought.
_FORMER = ""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """One file that something came from.

    Attributes:
        file_id: Names it in marks and ids; empty for those that versions before 0.2 imported.
        name: Its own name, without folders.
        path: Where it was last, absolute; None where that was not known.
        machine: Whose path that is.
        project: The project that the caller named for it.
    """

    file_id: str
    name: str
    path: str | None = None
    machine: str | None = None
    project: str | None = None

    @property
    def note(self) -> str:
        """As the receipt of a commit keeps it."""
        return _NOTE + json.dumps({name: value for name, value in asdict(self).items() if value}, ensure_ascii=False)

    def may_be(self, other: KnownFile) -> bool:
        """Whether a file that is elsewhere, or nobody knows where, can be this one still."""
        if self.name.casefold() != other.name.casefold() or (
            self.project and other.project and self.project != other.project
        ):
            return False
        if self.path is None or other.path is None or self.path == other.path:
            return True
        return self.machine == other.machine and not os.path.lexists(self.path)


def noted_file(note: str) -> KnownFile | None:
    """The file that a note of a receipt names."""
    if not note.startswith(_NOTE):
        return None
    try:
        facts = json.loads(note.removeprefix(_NOTE))
        return KnownFile(**{str(name): str(value) for name, value in facts.items()})
    except (ValueError, TypeError, AttributeError):  # somebody wrote it by hand
        return None


#: An item's id, its digest and its file's id, at the end of a note of a receipt.
MARK = re.compile(r"\[import ([0-9a-f]{16}) ([0-9a-f]{16})(?: ([0-9a-f]{16}))?\]$")


def imported_from(receipt: Mapping[str, Any]) -> Mapping[str, str]:
    """The name of the file that each memory of an import came from, by URI, where its receipt says so."""
    files = {each.file_id: each.name for each in map(noted_file, receipt.get("notes", ())) if each is not None}
    marks = ((result["uri"], MARK.search(result.get("note") or "")) for result in receipt.get("results", ()))
    return {uri: files[mark[3]] for uri, mark in marks if mark is not None and mark[3] in files}


@dataclass(slots=True)
class KnownFiles:
    """Tells for each file of an import which earlier one it is.

    Attributes:
        earlier: The items of earlier imports.
        ledger: Where their texts are.
        project: The project that the caller named; None is none.
        sent: Whether paths are those of copies that somebody sent, and say nothing.
        begun: When the import began (ISO 8601): of two new files of one name the ids differ.
    """

    earlier: EarlierImports
    ledger: Ledger
    project: str | None
    sent: bool
    begun: str
    _claimed: set[str] = field(default_factory=set)

    def file(self, entry: Entry, items: Sequence[MemoryItem]) -> KnownFile:
        """The file as it is now, under the id that it has, or gets.

        Args:
            entry: The file.
            items: What stands in it, with the ids that they have within a file.
        """
        path = None if self.sent or entry.path is None else os.path.realpath(entry.path)
        machine = None if path is None else platform.node()
        now = KnownFile("", entry.base, path, machine, self.project)
        found = self._earlier_id(now, items)
        file_id = self._new_id(now) if found is None else found
        self._claimed.add(file_id)
        return KnownFile(file_id, now.name, path, machine, self.project)

    def _earlier_id(self, now: KnownFile, items: Sequence[MemoryItem]) -> str | None:
        files = [each for each in self.earlier.files.values() if each.file_id not in self._claimed]
        at_place = [each for each in files if (each.path, each.machine) == (now.path, now.machine)]
        if now.path is not None and at_place:
            return at_place[0].file_id
        candidates = [each.file_id for each in files if each.may_be(now)]
        shares = {file_id: self._share(file_id, items) for file_id in (*candidates, _FORMER)}
        best = max(shares, key=lambda file_id: shares[file_id])
        second = max((share for file_id, share in shares.items() if file_id != best), default=0.0)
        return best if shares[best] >= _SAME_SHARE and shares[best] >= second + _CLEARLY else None

    def _new_id(self, now: KnownFile) -> str:
        own = digest_of([now.machine, now.path])
        taken = now.path is None or own in self.earlier.files
        return digest_of([own, now.name, self.begun, len(self._claimed)]) if taken else own

    def _share(self, file_id: str, items: Sequence[MemoryItem]) -> float:
        """How much of what came from a file, and of what stands in another now, is the same, in [0, 1]."""
        marks = self.earlier.of_file(file_id, items)
        here = {self.earlier.identity(item.with_file_id(file_id)): _words(item.content) for item in items}
        there = {identity: _words(self._text(mark)) for identity, mark in marks.items()}
        size = sum(map(len, here.values())) + sum(map(len, there.values()))
        if not there or not size:
            return 0.0
        both = here.keys() & there.keys()
        changed = sum(edit.end - edit.start for each in both for edit in edits(here[each], there[each]))
        shared = sum(len(here[each]) for each in both) - changed  # words that both have, in one order
        left = [there[each] for each in there.keys() - both]  # below a heading that has another name by now
        for each in here.keys() - both:
            if here[each] in left:
                left.remove(here[each])
                shared += len(here[each])
        return 2 * shared / size

    def _text(self, mark: Mark) -> str:
        return split(self.ledger.text_at(MemoryUri.parse(mark.uri), mark.seq) or "").body


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORDS.findall(text.casefold()))
