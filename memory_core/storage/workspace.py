"""Which project a folder belongs to: its repository's origin, else the name of the repository's or project's folder.

Reads a few small files and runs no program. What cannot be read is no project; the home folder and the root of a
disk never are one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from memory_core.model.project import folder_name, remote_name

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
    own = _joined(git.parent, pointer.removeprefix("gitdir:").strip())
    common = _read(own / "commondir").strip()
    return _joined(own, common) if common else own


def _joined(base: Path, path: str) -> Path:
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
