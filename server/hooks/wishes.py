"""The few settings that a hook needs before anything heavy is imported: which store, what is on, how long it may take.

The same files, variables and options as ``core.config.load`` reads, without its checks: a value of the wrong
kind counts as not given here, and whoever opens the store refuses it. A test holds the defaults to those of
``HooksConfig``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_PREFIX = "RUNEBOOK_"
_STATE = ".state"
_TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})
_FALSE = frozenset({"0", "false", "off", "no", "n", "f"})
_DEFAULTS: Mapping[str, Any] = {
    "home": "~/.runebook",
    "user_space": "default",
    "agent_space": "default",
    "private_mode": False,
    "project.name": "",
    "project.detect": True,
    "retrieve.query_messages": 5,
    "retrieve.intent_check": True,
    "hooks.session_start": True,
    "hooks.user_prompt": True,
    "hooks.post_read": True,
    "hooks.pre_compact": True,
    "hooks.session_end": True,
    "hooks.stop": False,
    "hooks.session_start_tokens": 2_000,
    "hooks.user_prompt_tokens": 1_200,
    "hooks.deadline_ms": 250,
    "hooks.patience_seconds": 10.0,
    "hooks.extract": True,
}


class Wishes(NamedTuple):
    """Settings by their dotted names, for one hook.

    Attributes:
        values: Every name of ``_DEFAULTS``.
        options: The options of the command line that name the store, for another process of ours.
    """

    values: Mapping[str, Any]
    options: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The folder of memories."""
        return Path(os.path.abspath(os.path.expanduser(str(self.values["home"]))))  # noqa: PTH100, PTH111 - never raises

    @property
    def state(self) -> Path:
        """The folder of machine files."""
        return self.root / _STATE

    def wants(self, event: str) -> bool:
        """Whether an event is answered at all."""
        return bool(self.values[f"hooks.{event.replace('-', '_')}"])


def read_wishes(
    home: str | None, config: str | None, flags: Sequence[str], environment: Mapping[str, str] | None = None
) -> Wishes:
    """The settings in force; never raises.

    Args:
        home: ``--home``.
        config: ``--config``.
        flags: Each ``NAME=VALUE`` of ``--set``.
        environment: Variables; None means ``os.environ``.
    """
    environment = os.environ if environment is None else environment
    above = {name: environment.get(_PREFIX + name.replace(".", "_").upper()) for name in _DEFAULTS}
    above |= {name.strip(): value for name, _, value in (flag.partition("=") for flag in flags)}
    above["home"] = home or above["home"]
    named = config or environment.get(f"{_PREFIX}CONFIG")
    path = named or f"{above['home'] or _DEFAULTS['home']}/config.json"
    file = _file(os.path.expanduser(path))  # noqa: PTH111 - never raises
    values = {name: _fitting(name, above[name], file) for name in _DEFAULTS}
    options = [*(("--home", home) if home else ()), *(("--config", config) if config else ())]
    return Wishes(values, (*options, *(part for flag in flags for part in ("--set", flag))))


def _fitting(name: str, above: str | None, file: Mapping[str, Any]) -> Any:
    """The value of one setting: what is given, if it is of the default's kind."""
    default = _DEFAULTS[name]
    read = (_read(given, default) for given in (above, _within(file, name)) if given not in (None, ""))
    return next((value for value in read if value is not None), default)


def _read(given: Any, default: Any) -> Any:
    """A value of the default's kind; None where it is none."""
    if isinstance(default, str):
        return given if isinstance(given, str) else None
    text = str(given).strip().casefold()
    if isinstance(default, bool):
        return text in _TRUE if text in _TRUE | _FALSE else None
    try:
        return type(default)(text)
    except ValueError:
        return None


def _within(file: Any, name: str) -> Any:
    for part in name.split("."):
        file = file.get(part) if isinstance(file, Mapping) else None
    return file


def _file(path: str) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8-sig") as stream:  # noqa: PTH123 - the path was expanded as text
            value = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
