"""The few settings that a process needs before it imports anything heavy: which store, for whom, and what hooks may do.

They are read where ``core.config.load`` reads them (options, then variables, then the file), but not checked: a value
of the wrong kind counts as not given here, and whoever opens the store refuses it. A test holds the defaults to those
of ``Config``. The standard library alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from server.foreign_json import value_at

_DEFAULTS: Mapping[str, Any] = {
    "home": "~/.runebook",
    "user_space": "default",
    "agent_space": "default",
    "private_mode": False,
    "hooks.session_start": True,
    "hooks.user_prompt": True,
    "hooks.post_read": True,
    "hooks.pre_compact": True,
    "hooks.session_end": True,
    "hooks.stop": False,
    "hooks.deadline_ms": 1_000,
    "hooks.patience_seconds": 10.0,
    "hooks.extract": True,
    "llm.provider": "none",
}
_ON = frozenset({"1", "true", "on", "yes", "y", "t"})
_OFF = frozenset({"0", "false", "off", "no", "n", "f"})


class EarlySettings(NamedTuple):
    """The settings of one process.

    Attributes:
        values: By their dotted names: every name of ``_DEFAULTS``.
        file: The settings file, which need not be there.
    """

    values: Mapping[str, Any]
    file: str

    @property
    def root(self) -> Path:
        """The folder of memories, absolute."""
        return Path(os.path.abspath(os.path.expanduser(self.values["home"])))  # noqa: PTH100, PTH111 - never raises

    @property
    def state(self) -> Path:
        """The folder of machine files."""
        return self.root / ".state"

    @property
    def changed_at(self) -> float | None:
        """When what the settings file says was put there, in seconds since 1970; None where there is no such file.

        A file that is moved to its place keeps the time at which it was written; but the system notes the move.
        """
        try:
            found = (os.stat(self.file), os.lstat(self.file))  # noqa: PTH116 - as text
        except (OSError, ValueError):
            return None
        return min(time.time(), max(each.st_mtime if os.name == "nt" else each.st_ctime for each in found))


def read_early(
    home: str | None, config: str | None, flags: Sequence[str], environment: Mapping[str, str] | None = None
) -> EarlySettings:
    """The settings in force; never raises.

    Args:
        home: ``--home``.
        config: ``--config``.
        flags: Each ``NAME=VALUE`` of ``--set``.
        environment: Variables; None means ``os.environ``.
    """
    environment = os.environ if environment is None else environment
    given = {name: environment.get(f"RUNEBOOK_{name.replace('.', '_').upper()}") for name in _DEFAULTS}
    given |= {name.strip(): value for name, _, value in (flag.partition("=") for flag in flags)}
    given["home"] = home or given["home"]
    path = config or environment.get("RUNEBOOK_CONFIG") or f"{given['home'] or _DEFAULTS['home']}/config.json"
    path = os.path.expanduser(path)  # noqa: PTH111 - never raises
    file = _object(path)
    return EarlySettings(
        {name: _first(default, given[name], value_at(file, name.split("."))) for name, default in _DEFAULTS.items()},
        path,
    )


def working_directory() -> str:
    """Where this process works; empty where that folder is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - as text
    except OSError:  # it was removed
        return ""


def as_switch(value: Any) -> bool | None:
    """Whether ``value`` means on or off; None where it means neither."""
    text = str(value).strip().casefold()
    return text in _ON if text in _ON | _OFF else None


def _first(default: Any, *given: Any) -> Any:
    """The first given value that is of the default's kind; else the default."""
    for value in given:
        if isinstance(default, bool) and (switch := as_switch(value)) is not None:
            return switch
        if isinstance(default, str) and isinstance(value, str) and value:
            return value
        if not isinstance(default, bool | str):
            try:
                return type(default)(str(value).strip())
            except ValueError:
                continue
    return default


def _object(path: str) -> Any:
    try:
        with open(path, encoding="utf-8-sig") as stream:  # noqa: PTH123 - the path was expanded as text
            return json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
