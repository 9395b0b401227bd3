"""Projects: whose a memory is, what a search is about, and which project a folder belongs to.

A folder's project is its repository's origin, else the name of the repository's or project's folder. To find it a few
small files are read and no program is run; what cannot be read is no project, and the home folder and the root of a
disk never are one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_core.core.config import ProjectConfig
from memory_core.core.errors import ContentRejected, FieldRejected, InvalidInput
from memory_core.core.frozen import frozen
from memory_core.core.memory.memory_type import ProjectMode
from memory_core.core.text.unicode_form import unicode_form

if TYPE_CHECKING:
    from memory_core.core.memory.memory_type import MemoryType
    from memory_core.core.memory.metadata import Metadata


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


@frozen
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


@frozen
class ProjectAssignment:
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

    @property
    def is_private(self) -> bool:
        """Whether what belongs to the project is private to it, as the caller said or by default."""
        return self.project is not None and (self.by_default if self.private is None else self.private)

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

    def told_in(self, memory_type: MemoryType) -> str | None:
        """The project that was worked in when a memory was told that belongs to none."""
        shared = memory_type.project is ProjectMode.NEVER or self.of_type(memory_type) is not None
        return None if shared else self.project

    def meta(self, memory_type: MemoryType) -> dict[str, Any]:
        """Trailer keys of a new memory."""
        project = self.of_type(memory_type)
        private = self.by_default if self.private is None else self.private
        return {"project": project, "private": True if private and project is not None else None}

    def check_new(self, memory_type: MemoryType) -> str | None:
        """Refuse a private memory of a type that belongs to no project.

        Returns:
            A note where the type keeps a memory out of the project that was named.

        Raises:
            ContentRejected: If it would be seen everywhere.
        """
        if memory_type.project is not ProjectMode.NEVER or self.project is None or not self.named:
            return None
        if self.confined:
            raise ContentRejected(
                f"memories of type '{memory_type.name}' are seen in every project, and this commit is private to one.",
                hint="Use another type, or leave private out.",
            )
        return f"memories of type '{memory_type.name}' belong to no project"

    def check_existing(self, memory_type: MemoryType, uri: str, project: str | None, *, replaces: bool) -> None:
        """Refuse to change a memory that is not this project's to change.

        Args:
            memory_type: The memory's type.
            uri: The memory.
            project: The memory's.
            replaces: Whether its fields are written anew; an edit of a memory that was looked up may be of any project.

        Raises:
            FieldRejected: If it belongs to another project.
            ContentRejected: If the commit is private, and others see the memory.
        """
        decided = self.project is not None or self.named
        if replaces and decided and project not in self.sought(memory_type):
            raise FieldRejected(
                f"{uri!r} is not a memory of this project.",
                hint="Leave the uri out to write one for this project, or change that one by an edit operation.",
            )
        if self.confined and project != self.project:
            raise ContentRejected(
                f"{uri!r} is seen outside of the project that this commit is private to.",
                hint="Write it as a memory of its own, or leave private out.",
            )

    def check_shared(self) -> None:
        """Refuse the summary of a directory from a private commit: it is shown in every project.

        Raises:
            ContentRejected: If the commit is private.
        """
        if self.confined:
            raise ContentRejected(
                "the summary of a directory is shown in every project, and this commit is private to one.",
                hint="Leave the overview operation out.",
            )

    def privacy(self, project: str | None) -> dict[str, Any]:
        """What a commit says about the privacy of a memory that is there already, if it is of the same project."""
        if self.private is None or project != self.project or not self.project:
            return {}
        return {"private": True if self.private else None}


#: Of a commit that says nothing, where there is no project.
NO_PROJECT = ProjectAssignment()


def project_name(text: str) -> str:
    """A project's name as it is stored, from what a caller calls it; a repository's address in any form is one.

    Raises:
        InvalidInput: If it is blank, too long, or holds what no line of text does.
    """
    name = unicode_form("NFC", text.strip()) if isinstance(text, str) else ""
    if not name or len(name) > NAME_LIMIT_CHARS or _UNSOUND.search(name):
        raise InvalidInput("project is no name of a project.", hint=_HINT)
    if "://" in name or "@" in name.partition(":")[0]:
        return remote_name(name) or name
    found = _ADDRESS.fullmatch(name)
    return (found and _joined(found["host"], found["path"])) or name


def remote_name(url: str) -> str | None:
    """Host and path of a repository's remote, lower case, without user, port and ``.git``; None for a local one.

    ``git@GitHub.com:Acme/backend.git`` and ``https://github.com/acme/backend`` are ``github.com/acme/backend``.
    """
    url = url.strip()
    found = _WITH_SCHEME.fullmatch(url) or (None if "://" in url else _SCP.fullmatch(url))
    return None if found is None else _joined(found["host"], found["path"])


def folder_name(name: str) -> str | None:
    """The project that a folder's name stands for; None where it cannot be a name."""
    name = unicode_form("NFC", name.strip())
    sound = 0 < len(name) <= NAME_LIMIT_CHARS and not _UNSOUND.search(name) and name.casefold() not in (HERE, GLOBAL)
    return name if sound else None


def project_key(project: str | None, key: str) -> str:
    """The key that the ledger knows a memory by: that of a project's memory is no other project's, and no global one.

    Keys that ``names.key_of`` makes never hold the mark at that number of places, so the two cannot be confused.
    """
    return key if project is None else f"{_MARK}{project}\x1f{key}"


def stored_project(memory_type: MemoryType | None, meta: Mapping[str, Any]) -> str | None:
    """The project in a trailer; a hand edit may have left anything there."""
    if memory_type is not None and memory_type.project is ProjectMode.NEVER:
        return None
    given = meta.get("project")
    return folder_name(given) if isinstance(given, str) else None


def told_project(memory_type: MemoryType | None, meta: Metadata) -> str | None:
    """The project that a memory belongs to, or was told in: what is looked for in a project is about both."""
    own = stored_project(memory_type, meta)
    return stored_project(memory_type, meta.source) if own is None else own


def _joined(host: str, path: str) -> str | None:
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
    if not parts:
        return None
    parts[-1] = parts[-1].removesuffix(".git") or parts[-1]
    return folder_name("/".join([host, *parts]).lower())


_CHOICE_HINT = "Name one, as find prints it, such as github.com/acme/backend; or set project.name."


class ProjectChoice:
    """The rules of one configuration.

    Args:
        settings: Name and defaults.

    Raises:
        InvalidInput: If the setting is no name.
    """

    def __init__(self, settings: ProjectConfig) -> None:
        self._name = project_name(settings.name) if settings.name.strip() else None
        self._by_default = settings.private

    def current(self, found: str | None) -> str | None:
        """The project that the caller works in; ``found`` is what its roots or folder say."""
        return self._name or found

    def scope(self, argument: str | None, found: str | None) -> ProjectScope:
        """What a search is about: a named project alone, or everything with the current one first.

        Args:
            argument: A name, "." for the current project, "" or "global" for what belongs to none, or None.
            found: See ``current``.

        Raises:
            InvalidInput: If it is no name, or there is no current project.
        """
        if argument is None:
            return ProjectScope(self.current(found))
        return ProjectScope(self._named(argument, found), only=True)

    def assignment(self, argument: str | None, private: bool | None, found: str | None) -> ProjectAssignment:
        """Whose the memories of a commit are.

        What is said to be private belongs to the current project, as if it had been named.

        Raises:
            InvalidInput: If the argument is no name, or something is to be private to no project.
        """
        project = self.current(found) if argument is None else self._named(argument, found)
        if private and project is None:
            raise InvalidInput(
                "private needs a project to be private to.", hint=f"{_CHOICE_HINT} Or leave private out."
            )
        return ProjectAssignment(project, argument is not None or private is True, private, self._by_default)

    def of_session(self, project: str | None, *, private: bool) -> ProjectAssignment:
        """Whose the memories of a conversation are; those of a private one all stay in its project."""
        return ProjectAssignment(project, named=private, private=True if private else None, by_default=self._by_default)

    def _named(self, argument: str, found: str | None) -> str | None:
        if argument.strip().casefold() in ("", GLOBAL):
            return None
        if argument.strip() != HERE:
            return project_name(argument)
        if (current := self.current(found)) is None:
            raise InvalidInput("no project is known here.", hint=_CHOICE_HINT)
        return current


_GIT = ".git"
#: What makes a folder a project where there is no git.
_MARKERS = (
    *(".hg", ".jj", ".svn"),
    *("pyproject.toml", "package.json", "Cargo.toml", "go.mod", "pom.xml", "build.gradle", "build.gradle.kts"),
)
_LEVELS = 32
_FILE_BYTES = 64 * 1024
_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_URL = re.compile(r"\s*url\s*=\s*(.*)", re.IGNORECASE)


def project_at(folder: Path, home: Path | None = None) -> str | None:
    """The project that a folder is part of.

    The nearest repository around it counts; without one, the nearest folder that looks like a project.

    Args:
        folder: Any folder or file; need not exist.
        home: The user's home folder; default the system's.

    Returns:
        ``github.com/acme/backend`` where the repository's origin is on some host: the same in every clone and
        worktree. Else the folder's name. None for no project.
    """
    marked: Path | None = None
    try:
        start = folder.absolute()
        stop = _home() if home is None else home.absolute()
        for place in (start, *start.parents)[:_LEVELS]:
            if place in (stop, place.parent):
                break
            if (place / _GIT).exists():
                return _repository(place)
            if marked is None and any((place / marker).exists() for marker in _MARKERS):
                marked = place
    except (OSError, ValueError):
        return None
    return None if marked is None else folder_name(marked.name)


def _home() -> Path | None:
    try:
        return Path.home().absolute()
    except RuntimeError:
        return None


def _repository(place: Path) -> str | None:
    """The project of the repository whose work tree is ``place``."""
    shared = _shared_git_folder(place / _GIT)
    if shared is None:
        return folder_name(place.name)
    named = remote_name(_origin(_read(shared / "config")) or "")
    if named is not None:
        return named
    if "modules" in shared.parts[-3:]:  # a submodule's; its own folder has the better name
        return folder_name(place.name)
    main = shared.parent if shared.name == _GIT else shared
    return folder_name(main.name.removesuffix(_GIT) or place.name)


def _shared_git_folder(git: Path) -> Path | None:
    """The folder that holds a repository's config: of a worktree that of the main one, of a submodule its own."""
    if git.is_dir():
        return git
    pointer = _read(git).strip()
    if not pointer.startswith("gitdir:"):
        return None
    own = _joined_path(git.parent, pointer.removeprefix("gitdir:").strip())
    common = _read(own / "commondir").strip()
    return _joined_path(own, common) if common else own


def _joined_path(base: Path, path: str) -> Path:
    # Git writes "../../.git/…"; resolving links is not wanted, and may leave the disk.
    return Path(os.path.normpath(base / path))


def _origin(config: str) -> str | None:
    """The address of the remote ``origin``, else that of the first remote, in a git config."""
    found: dict[str, str] = {}
    remote: str | None = None
    for line in config.splitlines():
        section = _SECTION.fullmatch(line)
        if section is not None:
            remote = section[2] if section[1].lower() == "remote" else None
            line = section[3]
        url = _URL.fullmatch(line)
        if url is not None and remote is not None:
            found.setdefault(remote, _value(url[1]))
    return found.get("origin") or next(iter(found.values()), None)


def _value(text: str) -> str:
    """A value without quotes and comment."""
    text = text.strip()
    if text.startswith('"'):
        return text[1:].partition('"')[0]
    return re.split(r"\s[#;]", text, maxsplit=1)[0].strip()


def _read(path: Path) -> str:
    """The beginning of a file; empty where there is none."""
    if not path.is_file():  # a pipe would block
        return ""
    try:
        with path.open("rb") as stream:
            return stream.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
