"""What is said of each setting where people see and change them, and the JSON file in which they are changed.

A change is checked together with all that is in force before anything is written. Does not: apply it; ``followed``
says what an open store can take over.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from memory_core.core import config as declared
from memory_core.core.config import Config, environment_name
from memory_core.core.errors import ConfigInvalid, InvalidInput
from memory_core.core.frozen import frozen
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock

Origin = Literal["default", "file", "environment", "option"]
Kind = Literal["text", "number", "flag", "choice", "list"]
_KINDS: Mapping[Any, Kind] = {Literal: "choice", tuple: "list", int: "number", float: "number", bool: "flag"}
#: They say who may come in or where memories and keys are sent, or name folders and programs: whoever may write the
#: file changes them, nobody over HTTP.
_FILE_ONLY = frozenset(
    {"home", "user_space", "agent_space", "schema_dirs", "prompt_dirs", "store.url", "llm.command", "llm.base_url"}
    | {"index.mode", "index.url", "index.tenant", "index.database"}
)
#: Models by the name that a hub has for them, or by a folder, which likewise the file alone may name.
_MODELS = frozenset({"embedding.model", "search.rerank_model"})
_ON_A_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}(?:/[A-Za-z0-9_.-]{1,96})?")
_FILE_ONLY_SECTION = "http."
#: What has opened a store keeps these, and whole sections of them, until it is started anew.
_AT_START = frozenset(
    {
        *("home", "user_space", "agent_space", "schema_dirs", "watch", "store", "index", "embedding", "llm"),
        *("maintenance", "http", "sharing"),
    }
)
_ALSO_AT_START = "search.rerank_model"
_NO_FILE = (0, 0, 0)
#: Half of a surrogate pair: JSON may hold it alone, UTF-8 cannot.
_HALF = re.compile(r"[\ud800-\udfff]")
#: Of a database, in its address.
_PASSWORD = re.compile(r"(?<=:)[^/@][^@]*(?=@)|(?<=password=)[^&]*")
#: Of another address; a key may be in it.
_QUERY = re.compile(r"(?<=\?).+")


@frozen
class Setting:
    """One setting as it is shown.

    Attributes:
        name: Dotted.
        value: In force; in JSON.
        default: What it is where nobody sets it.
        description: One sentence.
        environment: The variable that sets it.
        origin: Where the value comes from.
        kind: How it is written.
        choices: Of a choice.
        least: Of a number, where it has a bound.
        most: Likewise.
        locked: Why it cannot be changed over HTTP: it stands in a stronger place, or the file alone may say it.
        at_start: Whether a change counts from the next start of a program on.
    """

    name: str
    value: Any
    default: Any
    description: str
    environment: str
    origin: Origin
    kind: Kind
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    locked: Literal["environment", "option", "file"] | None = None
    at_start: bool = False


class SettingsFile:
    """The settings of one program: a JSON file, over which variables and options go.

    Args:
        path: As in ``config.load``.
        environment: As in ``config.load``.
        flags: As in ``config.load``.
    """

    def __init__(
        self,
        path: Path | None = None,
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> None:
        self._given = (path, dict(os.environ) if environment is None else environment, dict(flags or {}))
        self._read_as: tuple[int, int, int] | None = None

    @cached_property
    def path(self) -> Path:
        """The file.

        Raises:
            ConfigInvalid: As ``config.load``.
        """
        return declared.settings_file(*self._given)[0]

    def load(self) -> Config:
        """The settings in force.

        Raises:
            ConfigInvalid: As ``config.load``.
        """
        return declared.load(*self._given)

    def changed(self) -> Config | None:
        """The settings in force, if the file is not the one that it was at the last call; not for several threads.

        Raises:
            ConfigInvalid: As ``config.load``, once.
        """
        try:
            found = self.path.stat()
            here = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            here = _NO_FILE
        if here == self._read_as:
            return None
        self._read_as = here
        return self.load()

    def settings(self) -> list[Setting]:
        """All of them, in the order of their declaration."""
        _, environment, flags = self._given
        _, file = declared.settings_file(*self._given)
        values, defaults = declared.merged(file, environment, flags).as_dict(), Config().as_dict()
        values["store"]["url"] = _PASSWORD.sub("…", values["store"]["url"])
        for section, name in (("llm", "base_url"), ("index", "url")):
            values[section][name] = _QUERY.sub("…", _PASSWORD.sub("…", values[section][name]))
        return [
            _setting(name, _member(values, name), _member(defaults, name), about, self._origin(name, file))
            for name, _, about in declared.settings()
        ]

    def change(self, name: str, value: Any) -> Config:
        """Write one setting into the file; None takes it out.

        Returns:
            The settings in force now.

        Raises:
            InvalidInput: If it does not exist, cannot be changed here, or the value does not suit it.
            StorageFailed: If the file cannot be written.
        """
        known = {setting.name: setting for setting in self.settings()}
        if name not in known:
            raise InvalidInput(f"there is no setting {name!r}.", hint="See them with runebook config.")
        if (locked := known[name].locked) is not None:
            raise InvalidInput(f"setting '{name}' cannot be changed here.", hint=_UNLOCKING[locked])
        if name in _MODELS and isinstance(value, str) and value and not _is_on_a_hub(value):
            raise InvalidInput(f"setting '{name}' cannot name a folder here.", hint=_UNLOCKING["file"])
        try:
            return self.write({name: value})
        except ConfigInvalid as error:
            raise InvalidInput(error.message, hint=known[name].description) from None

    def write(self, changes: Mapping[str, Any]) -> Config:
        """Write settings into the file, which is made where it is missing; all else in it stays.

        Of programs that write at once one waits for the other.

        Args:
            changes: Values by name (``llm.provider``); None takes a setting out.

        Returns:
            The settings in force now.

        Raises:
            ConfigInvalid: If a value does not suit; nothing was written.
            StorageFailed: If the file cannot be written.
            StoreBusy: If another program held it too long.
        """
        path, environment, flags = self._given
        file = self.path
        atomic.make_folder(file.parent)
        with _lock_of(file.resolve()).held():
            file, values = declared.settings_file(path, environment, flags)
            for name, value in changes.items():
                _put(values, name.split("."), value)
            config = declared.merged(values, environment, flags)
            text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
            if _HALF.search(text):
                raise ConfigInvalid("a setting holds half a character.", hint="Write it as UTF-8 can.")
            atomic.replace(file.resolve(), text)
            self._read_as = None
        return config

    def _origin(self, name: str, file: Mapping[str, Any]) -> Origin:
        """Where the value of a setting comes from, given what the file says."""
        _, environment, flags = self._given
        if flags.get(name) is not None:
            return "option"
        if environment.get(environment_name(name)):
            return "environment"
        return "file" if _holds(file, name) else "default"


def _lock_of(file: Path) -> StoreLock:
    """The lock of whoever changes a settings file; it lies beside it."""
    return StoreLock(file.with_name(f".{file.name}.lock"), guarded="the settings file")


def followed(opened: Config, changed: Config) -> Config:
    """The settings that an open store can follow, and those that it was opened with."""
    live = {name: getattr(changed, name) for name in Config.names() if name not in _AT_START}
    return opened.model_copy(update=live)


_UNLOCKING: Mapping[str, str] = {
    "environment": "A variable of the environment sets it: change that, and start the program anew.",
    "option": "An option of the command line sets it: leave that out, and start the program anew.",
    "file": "It says who may come in or where data is sent, or names a folder or a program: "
    "change it in the settings file.",
}


def _is_on_a_hub(model: str) -> bool:
    """Whether a model has a name of a hub, and no folder has it, too."""
    return _ON_A_HUB.fullmatch(model) is not None and not Path(model).exists()


def _setting(name: str, value: Any, default: Any, about: str, origin: Origin) -> Setting:
    hint, bounds = declared.annotation(name)
    kind = _KINDS.get(get_origin(hint) or hint, "text")
    only_file = name in _FILE_ONLY or name.startswith(_FILE_ONLY_SECTION)
    stronger: Literal["environment", "option"] | None = None
    if origin in ("environment", "option"):
        stronger = "environment" if origin == "environment" else "option"
    return Setting(
        name,
        value,
        default,
        about,
        environment_name(name),
        origin,
        kind,
        choices=get_args(hint) if kind == "choice" else (),
        least=None if bounds is None else bounds.least if bounds.above is None else bounds.above,
        most=None if bounds is None else bounds.most,
        locked="file" if only_file else stronger,
        at_start=name.partition(".")[0] in _AT_START or name == _ALSO_AT_START,
    )


def _member(tree: Any, name: str) -> Any:
    return reduce(lambda found, part: found.get(part), name.split("."), tree)


def _holds(values: Any, name: str) -> bool:
    for part in name.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return values is not None


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a member of nested objects, or take it out; an object that is then empty leaves with it."""
    name, *rest = path
    if rest:
        below = values.setdefault(name, {})
        if not isinstance(below, dict):
            raise ConfigInvalid(
                f"'{name}' in the settings file is no section.", hint="Write an object there, or remove it."
            )
        _put(below, rest, value)
        if not below:
            del values[name]
    elif value is None:
        values.pop(name, None)
    else:
        values[name] = value
