"""Where programs keep their files on a machine, by rule; and how this program is started on it.

Everything follows from the platform, the home folder and the environment, which are given: the rules of Windows can be
asked on Linux. Reads nothing but, in ``launcher``, whether the program's own file is there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from memory_core.errors import InvalidInput

Platform = Literal["linux", "darwin", "win32"]
_PROGRAM = "runebook"
_UVX = re.compile(r"[\\/]uv[\\/](?:cache[\\/])?(?:archive|environments|builds)-v\d+[\\/]")
_PIPX_RUN = re.compile(r"[\\/]pipx[\\/](?:\.cache|Cache|cache)[\\/]|[\\/]\.cache[\\/]pipx[\\/]")
_TEMPORARY = (
    re.compile(r"^/(?:private/)?(?:var/)?tmp/"),
    re.compile(r"^/(?:private/)?var/folders/"),
    re.compile(r"^/dev/shm/"),
    re.compile(r"[\\/]AppData[\\/]Local[\\/]Temp[\\/]", re.IGNORECASE),
)
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~-]+")


@dataclass(frozen=True, slots=True)
class Machine:
    """A user's account on a machine.

    Attributes:
        platform: ``sys.platform``, every Unix but macOS counting as Linux.
        home: The user's folder, of the path class of that platform.
        environment: Environment variables.
    """

    platform: Platform
    home: PurePath
    environment: Mapping[str, str]

    def folder(self, variable: str, *otherwise: str) -> PurePath:
        """The folder that a variable names, else one below the home folder."""
        named = self.environment.get(variable)
        return type(self.home)(named) if named else self.home.joinpath(*otherwise)

    def application_data(self) -> PurePath:
        """Where applications with windows keep their files for this user."""
        if self.platform == "win32":
            return self.folder("APPDATA", "AppData", "Roaming")
        if self.platform == "darwin":
            return self.home.joinpath("Library", "Application Support")
        return self.folder("XDG_CONFIG_HOME", ".config")


def this_machine() -> Machine:
    """The account that this process runs for.

    Raises:
        InvalidInput: If the system does not say where its home folder is.
    """
    platform: Platform = "win32" if sys.platform == "win32" else "darwin" if sys.platform == "darwin" else "linux"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise InvalidInput(
            f"the home folder is not known: {error}.", hint="Set HOME (USERPROFILE on Windows)."
        ) from error
    return Machine(platform, home, os.environ)


@dataclass(frozen=True, slots=True)
class Launcher:
    """How hosts start this program.

    Attributes:
        command: Full path of a program, or the name of a runner such as ``uvx``.
        prefix: Arguments before those of Runebook.
        lasting: Whether it will be there after the next tidying up.
    """

    command: str
    prefix: tuple[str, ...] = ()
    lasting: bool = True

    def line(self, *arguments: str) -> str:
        """A command line for a shell, Bash or PowerShell or ``cmd``, with the slashes that all of them take."""
        return " ".join(_shell_word(word) for word in (self.command.replace("\\", "/"), *self.prefix, *arguments))


def launcher(program: str | None = None, prefix: str | None = None, *, windows: bool = os.name == "nt") -> Launcher:
    """How this very installation is started.

    Args:
        program: How this process was started; by default ``sys.argv[0]``.
        prefix: The environment's folder; by default ``sys.prefix``.
        windows: Whether programs end in ``.exe``.
    """
    environment = sys.prefix if prefix is None else prefix
    if _UVX.search(f"{environment}{os.sep}"):
        return Launcher(_runner("uvx"), (_PROGRAM,))
    if _PIPX_RUN.search(f"{environment}{os.sep}"):
        return Launcher(_runner("pipx"), ("run", _PROGRAM))
    name = f"{_PROGRAM}.exe" if windows else _PROGRAM
    started = Path(sys.argv[0] if program is None else program)
    if windows and started.suffix != ".exe":
        started = started.with_name(f"{started.name}.exe")
    beside = Path(environment) / ("Scripts" if windows else "bin") / name
    for found in (started, beside, Path(sysconfig.get_path("scripts")) / name):
        if found.name == name and found.is_file():
            path = str(found.absolute())  # a link that an installer keeps up to date stays a link
            return Launcher(path, lasting=not is_temporary(path))
    return Launcher(sys.executable, ("-m", "server.cli"), lasting=not is_temporary(sys.executable))


def is_temporary(path: str) -> bool:
    """Whether a path lies where systems tidy up."""
    here = tempfile.gettempdir().rstrip("\\/") + os.sep
    return path.startswith(here) or any(pattern.search(path) for pattern in _TEMPORARY)


def arguments_of_serve(options: Sequence[str], *, shared: bool) -> list[str]:
    """The arguments that a host starts the server with."""
    return ["serve", *(["--shared"] if shared else []), *options]


def _runner(name: str) -> str:
    return shutil.which(name) or name


def _shell_word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else f'"{word.replace(chr(34), "")}"'
