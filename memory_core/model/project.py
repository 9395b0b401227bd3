"""Projects: how one is named, which is meant by a search, and which a commit's memories belong to.

A project's name is its repository's address without user and suffix (``github.com/acme/backend``), the same on every
machine and in every clone; else a folder's name, else whatever the owner calls it. Pure: looking at folders is
``storage.workspace``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory_core.errors import InvalidInput
from memory_core.model.project_mode import ProjectMode

if TYPE_CHECKING:
    from memory_core.model.schema import MemoryType

NAME_LIMIT_CHARS = 200
#: As the argument ``project``: the present one.
HERE = "."
#: As the argument ``project`` of a commit: none.
GLOBAL = "global"

_MARK = "project\x1f"
_UNSOUND = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_WITH_SCHEME = re.compile(
    r"(?:git\+)?(?:https?|ssh|git|ftps?)://(?:[^/@]*@)?(?P<host>[^/:@]+)(?::\d*)?/(?P<path>.+)", re.I
)
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:@]{2,}):(?P<path>[^/\\].*|/[^/].*)")
_ADDRESS = re.compile(r"(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)+)/(?P<path>[^:]+)", re.I)
_HINT = f"Give a name of at most {NAME_LIMIT_CHARS} characters on one line, such as github.com/acme/backend."


@dataclass(frozen=True, slots=True)
class ProjectScope:
    """The project that a search is about.

    Attributes:
        current: Its memories come first, and of all private memories only its own are seen. None is no project.
        only: Whether memories of other projects, and of none, are left out.
    """

    current: str | None = None
    only: bool = False

    def sees(self, project: str | None, *, private: bool) -> bool:
        """Whether a memory may be shown: those that are private to another project may not."""
        return not private or project is None or project == self.current

    def finds(self, project: str | None, *, private: bool) -> bool:
        """Whether a search gives a memory: of a project alone, what belongs to it; else what it sees."""
        return self.sees(project, private=private) and (not self.only or project == self.current)


@dataclass(frozen=True, slots=True)
class Belonging:
    """Which project the memories of a commit belong to.

    Attributes:
        project: The project; None is none.
        named: Whether the caller named it, or its absence, for these memories: then those of every type belong to
            it, and no other memory of the same key is meant.
        private: Whether they are to be private, as the caller said; None is not said.
        by_default: Whether new memories of a project are private where nothing is said.
    """

    project: str | None = None
    named: bool = False
    private: bool | None = None
    by_default: bool = False

    @property
    def confined(self) -> bool:
        """Whether nothing of this commit may get into a memory that other projects see."""
        return self.private is True and self.project is not None

    def of_type(self, memory_type: MemoryType) -> str | None:
        """The project of a new memory of a type."""
        if memory_type.project is ProjectMode.NEVER:
            return None
        return self.project if self.named or memory_type.project is ProjectMode.AUTO else None

    def sought(self, memory_type: MemoryType) -> tuple[str | None, ...]:
        """Projects whose memory of a key is the one that is meant, the first that has one; never another's."""
        if memory_type.project is ProjectMode.NEVER or self.project is None:
            return (None,)
        return (self.project,) if self.named else (self.project, None)

    def meta(self, memory_type: MemoryType) -> dict[str, Any]:
        """Trailer keys of a new memory."""
        project = self.of_type(memory_type)
        private = self.by_default if self.private is None else self.private
        return {"project": project, "private": True if private and project is not None else None}


#: Of a commit that says nothing, where there is no project.
NO_PROJECT = Belonging()


def project_name(text: str) -> str:
    """A project's name as it is stored, from what a caller calls it; a repository's address in any form is one.

    Raises:
        InvalidInput: If it is blank, too long, or holds what no line of text does.
    """
    name = unicodedata.normalize("NFC", text.strip()) if isinstance(text, str) else ""
    if not name or len(name) > NAME_LIMIT_CHARS or _UNSOUND.search(name):
        raise InvalidInput("project is no name of a project.", hint=_HINT)
    is_url = "://" in name or "@" in name.partition(":")[0]
    return (remote_name(name) if is_url else _address_name(name)) or name


def remote_name(url: str) -> str | None:
    """Host and path of a repository's remote, lower case, without user, port and ``.git``; None for a local one.

    ``git@GitHub.com:Acme/backend.git`` and ``https://github.com/acme/backend`` are ``github.com/acme/backend``.
    """
    url = url.strip()
    found = _WITH_SCHEME.fullmatch(url) or (None if "://" in url else _SCP.fullmatch(url))
    return None if found is None else _joined(found["host"], found["path"])


def folder_name(name: str) -> str | None:
    """The project that a folder's name stands for; None where it cannot be a name."""
    name = unicodedata.normalize("NFC", name.strip())
    sound = 0 < len(name) <= NAME_LIMIT_CHARS and not _UNSOUND.search(name) and name.casefold() not in (HERE, GLOBAL)
    return name if sound else None


def project_key(project: str | None, key: str) -> str:
    """The key that the ledger knows a memory by: that of a project's memory is no other project's, and no global one.

    Keys that ``filename.key_of`` makes never hold the mark at that number of places, so the two cannot be confused.
    """
    return key if project is None else f"{_MARK}{project}\x1f{key}"


def stored_project(memory_type: MemoryType | None, meta: Mapping[str, Any]) -> str | None:
    """The project in a trailer; a hand edit may have left anything there."""
    if memory_type is not None and memory_type.project is ProjectMode.NEVER:
        return None
    given = meta.get("project")
    return folder_name(given) if isinstance(given, str) else None


def is_private(memory_type: MemoryType | None, meta: Mapping[str, Any]) -> bool:
    """Whether a trailer makes its memory private to its project; without a project there is nobody to keep it for."""
    return meta.get("private") is True and stored_project(memory_type, meta) is not None


def _address_name(name: str) -> str | None:
    found = _ADDRESS.fullmatch(name)
    return None if found is None else _joined(found["host"], found["path"])


def _joined(host: str, path: str) -> str | None:
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
    if not parts:
        return None
    parts[-1] = parts[-1].removesuffix(".git") or parts[-1]
    return folder_name("/".join([host, *parts]).lower())
