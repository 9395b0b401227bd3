"""Looking without searching: ``read``, ``ls`` and ``tree``. Never writes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from memory_core.core.caches import PrefixCache
from memory_core.core.errors import InvalidInput, InvalidUri, NotFound, RunebookError
from memory_core.core.frozen import frozen
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.index.filter import private_elsewhere
from memory_core.core.memory.directory_page import abstract_line
from memory_core.core.memory.memory import parse
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.results import DEEPER_MOST, LinkedMemory, Listing, Listings, ReadResult
from memory_core.core.memory.uri import ABSTRACT_NAME, SCHEME, MemoryUri, Scope

if TYPE_CHECKING:
    from memory_core.core.feature import Features
    from memory_core.core.index.catalog import Catalog
    from memory_core.core.memory.metadata import Link
    from memory_core.core.memory.requests import ListRequest, TreeRequest
    from memory_core.core.store.files import Entry, FileStore


#: The word by which a file says that it is private to a project.
_PRIVATE = "private"
_FRAGMENT = re.compile(r"(?P<uri>.*\.(?:jsonl|md))#(?P<line>\d{1,9})")
_TURN = re.compile(rf"(?P<session>{SCHEME}{Scope.SESSION}/[^/]+/[^/]+)#(?P<line>\d{{1,9}})")
_NAMES_SHOWN = 8
#: More levels than any tree has.
_EVERY_LEVEL = 1_000
#: Line ends of the long texts that were read last: a log of megabytes is read page by page.
_LONG_ENDS: PrefixCache[str, int] = PrefixCache(4, 64 << 20)
_LONG_CHARS = 32_768
_LINKED_LINE_CHARS = 160
#: A file that is in no catalog is opened for its abstract up to this size.
_ABSTRACT_BYTES = 1024 * 1024

PRIVATE_LINE = "private to another project"


def is_elsewhere(uri: MemoryUri, text: str, project: str | None, features: Features) -> bool:
    """Whether a file's text is private to another project; of a file with entries, whether any of them is."""
    if _PRIVATE not in text and "\\u" not in text:  # it may be escaped
        return False
    scope = ProjectScope(project)
    kind = features.kind_of(uri)
    parts = None if kind is None else kind.assignments(text)
    if uri.name.endswith(".jsonl"):
        parts = [(message.project, message.private) for message in parse_lines(text)[0]]
    if parts is not None:
        return any(not scope.sees(belongs_to, private=private) for belongs_to, private in parts)
    memory = parse(uri, text, None)
    return not scope.sees(memory.project, private=memory.is_private)


@frozen
class Browser:
    """Reads one store within the spaces of one user and agent.

    Attributes:
        files: The files.
        catalog: Knows one-line abstracts, and what is private to other projects.
        spaces: ``scope/space`` names that may be seen.
        features: Their kinds of records are read in ways of their own.
        project: The one that somebody works in who looks; None is none.
        strict: Whether what is private to other projects is absent, not only left unexplained: for a reader who is
            not the owner's own hand.
    """

    files: FileStore
    catalog: Catalog
    spaces: Sequence[str]
    features: Features
    project: str | None = None
    strict: bool = False

    def seen_from(self, project: str | None, *, strict: bool = False) -> Browser:
        """The same store as somebody sees it who works in a project."""
        return replace(self, project=project, strict=strict)

    def visible(self, uri: MemoryUri) -> MemoryUri:
        """The URI itself, if it is in a space that may be seen.

        Raises:
            NotFound: If not; the same answer as for a file that does not exist.
        """
        if not self._may_see(uri):
            raise _absent(uri)
        return uri

    def is_elsewhere(self, uri: MemoryUri, text: str) -> bool:
        """Whether a file's text is private to another project than this browser's."""
        return is_elsewhere(uri, text, self.project, self.features)

    def _may_see(self, uri: MemoryUri) -> bool:
        inner = MemoryUri(uri.parts[1:]) if uri.scope is Scope.ARCHIVE else uri
        return len(inner.parts) < 2 or inner.space in self.spaces

    def _is_there(self, uri: MemoryUri) -> bool:
        """Whether there is a file or directory; above the spaces, where others have theirs, one with one's own."""
        if len(uri.parts) - (uri.scope is Scope.ARCHIVE) > 1:
            return self.files.is_dir(uri) or self.files.stat(uri) is not None
        return not uri.parts or (self.files.is_dir(uri) and next(self._below(uri, True, 1), None) is not None)

    def read(self, uri_text: str, offset: int = 0, limit: int = -1, limit_chars: int | None = None) -> ReadResult:
        """Lines of one file.

        Args:
            uri_text: The file, or a directory with ``/`` at its end, as lists show it, which reads as its list;
                ``…/messages.jsonl#12`` is line 12 of a session, as is ``viking://session/default/ID#12``;
                ``…/logs/2026-05-07.md#12`` is the entry of a daily log that begins there.
            offset: First line, 0-based.
            limit: Number of lines; -1 is to the end.
            limit_chars: Characters after which to stop at a line's end (a longer first line is cut).

        Raises:
            InvalidInput: If offset or limit is out of range.
            NotFound: If there is no such file.
        """
        uri_text = _TURN.sub(rf"\g<session>/{MESSAGES_NAME}#\g<line>", uri_text, count=1)
        fragment = _FRAGMENT.fullmatch(uri_text)
        if fragment is not None and self._has_entries(fragment["uri"]):
            uri_text, line = fragment["uri"], int(fragment["line"])
            whole = limit == -1 and offset == 0
            limit = self._entry_lines(uri_text, line) if whole else 1 if limit == -1 else limit
            offset += line
        uri = MemoryUri.parse(uri_text)
        text = self.text(uri)
        if text is None:
            if self._is_there(uri):
                if not uri_text.endswith("/"):
                    raise InvalidUri(f"{str(uri)!r} is a directory.", hint="List it with ls, then read a file.")
                from memory_core.core.memory.requests import ListRequest

                found = self.ls(ListRequest(str(uri)))
                lines = [f"{entry.uri}  {entry.abstract or ''}".rstrip() for entry in found.entries]
                lines += [f"… and {found.left_out} more; list it with ls"] if found.left_out else []
                return page_of(uri_text, "\n".join(lines), offset, limit, limit_chars)
            if uri.parts and self._is_there(away := MemoryUri((Scope.ARCHIVE.value, *uri.parts))):
                if self.strict and self.is_elsewhere(away, self.files.text(away) or ""):
                    raise _absent(uri)
                raise NotFound(
                    f"{str(uri)!r} is archived.", hint=f"Read {away}; runebook archive restore brings it back."
                )
            if (memory := self._with_ending(uri)) is not None:
                raise NotFound(f"there is nothing at {str(uri)!r}.", hint=f"Do you mean {memory}?")
            raise _absent(uri)
        return page_of(str(uri), text, offset, limit, limit_chars)

    def _with_ending(self, uri: MemoryUri) -> MemoryUri | None:
        """The memory whose address was given without its ending; None where there is none."""
        try:
            memory = uri.parent.child(f"{uri.name}.md")
            return None if self.text(memory) is None else memory
        except (InvalidUri, NotFound):
            return None

    def text(self, uri: MemoryUri) -> str | None:
        """A whole file; None where there is none.

        Raises:
            NotFound: If it may not be seen.
        """
        text = self.files.text(self.visible(uri))
        if text is not None and self.strict and self.is_elsewhere(uri, text):
            raise _absent(uri)
        return text

    def _has_entries(self, uri_text: str) -> bool:
        uri = MemoryUri.parse(uri_text)
        kind = self.features.kind_of(uri)
        return uri.name == MESSAGES_NAME or (kind is not None and kind.has_entries)

    def _entry_lines(self, uri_text: str, line: int) -> int:
        """How many lines the message or the entry has that begins at a line."""
        uri = self.visible(MemoryUri.parse(uri_text))
        kind = self.features.kind_of(uri)
        return 1 if kind is None else kind.entry_lengths(self.files.text(uri) or "").get(line, 1)

    def linked(self, uri: MemoryUri) -> tuple[LinkedMemory, ...]:
        """The memories that a memory relates to, the strongest relations first.

        Those in other spaces, those private to another project, and those that cannot be read are not named.
        """
        text = self.files.text(self.visible(uri)) if uri.name.endswith(".md") else None
        links = () if text is None else parse(uri, text, None).metadata.links
        ends = (self._end(link) for link in links)
        return tuple(sorted((end for end in ends if end is not None), key=lambda end: -end.strength))

    def _end(self, link: Link) -> LinkedMemory | None:
        """The other end of a link as it is now; None where it may not be named, or cannot be read."""
        try:
            uri = MemoryUri.parse(link.uri)
            if not self._may_see(uri):
                return None
            text = self.files.text(uri)
            if text is None and uri.scope is not Scope.ARCHIVE:
                archived = MemoryUri((Scope.ARCHIVE.value, *uri.parts))
                text = self.files.text(archived)
                uri = uri if text is None else archived
        except RunebookError:  # no address, or a file that cannot be read
            return None
        if text is None:
            return LinkedMemory(str(uri), link.relation, link.strength, "", "gone", link.at)
        if self.is_elsewhere(uri, text):
            return None
        memory = parse(uri, text, None)
        state = "archived" if uri.scope is Scope.ARCHIVE else "in use" if memory.metadata.is_active else "at rest"
        line = summary_line(self.catalog.abstracts([str(uri)]).get(str(uri)) or memory.line, _LINKED_LINE_CHARS)
        return LinkedMemory(str(uri), link.relation, link.strength, line, state, link.at)

    def ls(self, request: ListRequest) -> Listings:
        """Entries of one directory; see ``tree``."""
        return self._listed(request, 1)

    def tree(self, request: TreeRequest) -> Listings:
        """Everything below a directory, depth first.

        Raises:
            InvalidInput: If an argument is out of range.
            NotFound: If there is no such directory.
        """
        return self._listed(request, request.level_limit, counts_deeper=request.counts_deeper)

    def _listed(self, request: ListRequest, levels: int, *, counts_deeper: bool = False) -> Listings:
        if request.output not in ("agent", "original"):
            raise InvalidInput(f"output {request.output!r} is unknown.", hint='Use "agent" or "original".')
        if request.abs_limit < 1 or request.node_limit < 1 or levels < 1:
            raise InvalidInput("abs_limit, node_limit and level_limit start at 1.", hint="Leave them out for defaults.")
        uri = self.visible(MemoryUri.parse(request.uri))
        if not self._is_there(uri):
            raise _absent(uri)
        if not self.files.is_dir(uri):
            raise InvalidInput(f"{str(uri)!r} is a file.", hint="Read it with read.")
        entries = list(self._below(uri, request.show_all_hidden, levels))
        last = levels + len(uri.parts) if counts_deeper else None
        deeper = list(islice(self._deeper(entries, request.show_all_hidden, last), DEEPER_MOST))
        if self.strict:
            hidden = self._private([*entries, *deeper], self.project)
            entries = [entry for entry in entries if entry.uri not in hidden]
            deeper = [entry for entry in deeper if entry.uri not in hidden]
        shown = entries[: request.node_limit]
        lines = self._lines(shown, request.abs_limit) if request.output == "agent" else {}
        listings = tuple(
            Listing(
                uri=str(entry.uri) + ("/" if entry.is_dir else ""),
                name=entry.uri.name,
                is_dir=entry.is_dir,
                size=0 if entry.is_dir else entry.stat.size_bytes,
                updated_at=datetime.fromtimestamp(entry.stat.mtime_ns / 1e9, UTC).isoformat(timespec="seconds"),
                abstract=lines.get(entry.uri),
            )
            for entry in shown
        )
        depth = max((len(entry.uri.parts) - len(uri.parts) for entry in deeper), default=0)
        return Listings(listings, len(entries) - len(shown), len(deeper), depth)

    def _deeper(self, entries: Sequence[Entry], hidden: bool, last: int | None) -> Iterator[Entry]:
        """The files below directories that have so many parts."""
        for entry in entries:
            if entry.is_dir and len(entry.uri.parts) == last:
                yield from (each for each in self._below(entry.uri, hidden, _EVERY_LEVEL) if not each.is_dir)

    def _below(self, uri: MemoryUri, hidden: bool, levels: int) -> Iterator[Entry]:
        for entry in self.files.entries(uri):
            if entry.uri.name.startswith(".") and not hidden:
                continue
            if not self._may_see(entry.uri):
                continue
            if entry.is_dir and len(entry.uri.parts) < (3 if entry.uri.scope is Scope.ARCHIVE else 2):
                # Other users have theirs there, too: it is as new as what this one has.
                own = [each.stat.mtime_ns for each in self._below(entry.uri, hidden, 1)]
                if not own:
                    continue
                entry = replace(entry, stat=replace(entry.stat, mtime_ns=max(own)))
            yield entry
            if entry.is_dir and levels > 1:
                yield from self._below(entry.uri, hidden, levels - 1)

    def _lines(self, entries: Sequence[Entry], limit: int) -> dict[MemoryUri, str]:
        found = self.catalog.abstracts([str(entry.uri) for entry in entries if not entry.is_dir])
        private = frozenset() if self.strict else self._private(entries, self.project)
        lines: dict[MemoryUri, str] = {}
        for entry in entries:
            if entry.uri in private:
                lines[entry.uri] = summary_line(PRIVATE_LINE, limit)
                continue
            text = self._directory_line(entry.uri) if entry.is_dir else found.get(str(entry.uri))
            if text is None and entry.uri.name.endswith(".md") and entry.stat.size_bytes <= _ABSTRACT_BYTES:
                text = self.files.text(entry.uri)
                if text is not None:
                    elsewhere = self.is_elsewhere(entry.uri, text)
                    text = PRIVATE_LINE if elsewhere else parse(entry.uri, text, None).line
            lines[entry.uri] = summary_line(text or "", limit)
        return lines

    def _private(self, entries: Sequence[Entry], project: str | None) -> frozenset[MemoryUri]:
        """Which files are private to another project: by the catalog, archived ones by what they say.

        A file that shows what another one says shows no more than that: where any of it is private elsewhere, so is
        the file.
        """
        files = {str(entry.uri): entry.uri for entry in entries if not entry.is_dir}
        shelved = (uri for uri in files.values() if uri.scope is Scope.ARCHIVE)
        hidden = {uri for uri in shelved if is_elsewhere(uri, self.files.text(uri) or "", project, self.features)}
        if not self.catalog.holds_private(self.spaces, project):
            return frozenset(hidden)
        owners = {name: str(owner) for name, uri in files.items() if (owner := self._owner(uri)) is not None}
        elsewhere = private_elsewhere(project)
        rows = self.catalog.connection().execute(
            f"SELECT uri FROM documents d WHERE uri IN (SELECT value FROM json_each(?)) AND {elsewhere.sql}",
            (json.dumps([*files, *owners.values()]), *elsewhere.parameters),
        )
        found = {name for (name,) in rows}
        hidden.update(uri for name, uri in files.items() if name in found or owners.get(name) in found)
        return frozenset(hidden)

    def _owner(self, uri: MemoryUri) -> MemoryUri | None:
        kind = self.features.kind_of(uri)
        return None if kind is None else kind.privacy_source(uri)

    def _directory_line(self, uri: MemoryUri) -> str:
        """The directory's abstract, where there is one, else what it holds."""
        stored = self.files.text(uri.child(ABSTRACT_NAME))
        if stored is not None:
            return abstract_line(stored)
        inside = list(self._below(uri, False, 1))
        private = self._private(inside, None)
        inside = [entry for entry in inside if entry.uri not in private]
        names = ", ".join(entry.uri.name.removesuffix(".md") for entry in inside[:_NAMES_SHOWN])
        more = f", … ({len(inside)} in all)" if len(inside) > _NAMES_SHOWN else ""
        return names + more


def page_of(uri: str, text: str, offset: int = 0, limit: int = -1, limit_chars: int | None = None) -> ReadResult:
    """Lines of a text; the arguments are those of ``Browser.read``.

    Raises:
        InvalidInput: If offset or limit is out of range.
    """
    if offset < 0 or limit < -1:
        raise InvalidInput(
            f"offset {offset} and limit {limit} are out of range.",
            hint="offset counts lines from 0; limit is a number of lines, or -1 for all.",
        )
    total = _ends(text) + (text[-1:] not in ("", "\n"))
    if offset > total or (offset == total and total):
        raise InvalidInput(f"{uri!r} has {total} lines; there is no line {offset}.", hint="Start at a smaller offset.")
    first = _after_lines(text, offset)
    end, stop = _fitting(text, offset, first, total if limit == -1 else min(total, offset + limit), limit_chars)
    content = text[first:stop]
    if limit_chars is not None and len(content) > limit_chars:
        cut = f" […line {offset} has {len(content)} characters; the resource {uri} holds it whole]"
        content = content[: max(0, limit_chars - len(cut))] + cut
    elif end == total and text.endswith("\n"):
        content += "\n"
    return ReadResult(uri, content, offset, total, end if end < total else None)


def _ends(text: str) -> int:
    """How many line ends a text has."""
    return _LONG_ENDS.value(text, 0, _more_ends) if len(text) >= _LONG_CHARS else text.count("\n")


def _more_ends(count: int, text: str) -> int:
    return count + text.count("\n")


def _after_lines(text: str, count: int) -> int:
    """Where the line after so many begins."""
    place = 0
    for _ in range(count):
        place = text.find("\n", place) + 1
    return place


def _fitting(text: str, line: int, first: int, end: int, limit_chars: int | None) -> tuple[int, int]:
    """The line, up to ``end``, before which a page that begins with a line ends, and where its text ends.

    A page has one line at least; looks no farther than it reaches, for a log may have any size.
    """
    stop = first
    for at in range(line, end):
        following = text.find("\n", stop if at == line else stop + 1)
        following = len(text) if following < 0 else following
        if limit_chars is not None and at > line and following + 1 - first > limit_chars:
            return at, stop
        stop = following
    return end, stop


def _absent(uri: MemoryUri) -> NotFound:
    return NotFound(f"there is nothing at {str(uri)!r}.", hint="Search with find, or list its parent with ls.")
