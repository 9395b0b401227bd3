"""Which store a command line means and under which settings, told without reading them in full.

Hosts share a server only where they ask for the same: the same store, version and settings. The fingerprint is over
what the settings are made from, so that ``bridge`` need not load them: the file, the variables and the options.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.version import installed_version
from server.hooks.wishes import read_wishes

#: Variables that decide what a server does: ours, and those of the providers it may call.
_VARIABLES = ("RUNEBOOK_", "ANTHROPIC_", "OPENAI_", "CHROMA_")
_OWN_VARIABLES = frozenset({"RUNEBOOK_HOME", "RUNEBOOK_CONFIG"})
#: Settings whose value may be a path relative to the working directory.
_PATHS = ("schema_dirs", "prompt_dirs", "embedding.model", "search.rerank_model")


class Place(NamedTuple):
    """A store as a command line names it.

    Attributes:
        root: The folder of memories, absolute.
        settings: Fingerprint, the same for those that may share a server; the installed version is part of it.
        options: Of the command line, absolute, for another process of ours.
        folder: In which that process has to run.
    """

    root: Path
    settings: str
    options: tuple[str, ...]
    folder: Path

    @property
    def state(self) -> Path:
        """The folder of machine files."""
        return self.root / ".state"


def place_of(
    home: str | None, config: str | None, flags: Sequence[str], environment: Mapping[str, str] | None = None
) -> Place:
    """The store that options and variables name; never raises.

    Args:
        home: ``--home``.
        config: ``--config``.
        flags: Each ``NAME=VALUE`` of ``--set``.
        environment: Variables; None means ``os.environ``.
    """
    environment = os.environ if environment is None else environment
    root = read_wishes(home, config, flags, environment).root
    named = config or environment.get("RUNEBOOK_CONFIG")
    file = _absolute(named) if named else str(root / "config.json")
    text = _text(file)
    others = [flag for flag in flags if flag.partition("=")[0].strip() != "home"]
    variables = sorted(
        (name, value)
        for name, value in environment.items()
        if name.startswith(_VARIABLES) and name not in _OWN_VARIABLES
    )
    facts = [installed_version(), str(root), text, others, variables]
    options = ["--home", str(root), *(part for flag in others for part in ("--set", flag))]
    options += ["--config", file] if named else []
    folder = root
    if any(_is_relative(value) for value in _paths(text, others, environment)):
        folder = Path.cwd()
        facts.append(str(folder))
    fingerprint = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return Place(root, fingerprint, tuple(options), folder)


def _paths(text: str, flags: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Every value that may be a path."""
    given = dict(flag.partition("=")[::2] for flag in flags)
    for name in _PATHS:
        value: Any = _file(text)
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found = [*(value if isinstance(value, list) else [value]), given.get(name)]
        found.append(environment.get(f"RUNEBOOK_{name.replace('.', '_').upper()}"))
        for each in found:
            if isinstance(each, str):
                yield from each.split(os.pathsep)


def _is_relative(path: str) -> bool:
    """Whether something of that name is found from the working directory only."""
    expanded = os.path.expanduser(path)  # noqa: PTH111 - never raises
    return bool(path) and not os.path.isabs(expanded) and os.path.exists(expanded)  # noqa: PTH110, PTH117


def _file(text: str) -> Any:
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="backslashreplace")
    except OSError:
        return ""


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - never raises
