"""Where settings come from: one JSON file < environment (``RUNEBOOK_…``) < command-line flags.

Own code rather than pydantic-settings: that package alone costs 7 % of the server's cold start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from memory_core.config.section import Section
from memory_core.config.sections import Config
from memory_core.errors import ConfigInvalid

ENV_PREFIX = "RUNEBOOK_"
CONFIG_NAME = "config.json"


def settings(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every setting as (dotted name, default, description), in declaration order."""
    for name, info in model.model_fields.items():
        if isinstance(info.default, Section):
            yield from settings(type(info.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info.default, info.description or ""


def environment_name(dotted: str) -> str:
    """The variable that sets ``index.mode``: ``RUNEBOOK_INDEX_MODE``."""
    return ENV_PREFIX + dotted.replace(".", "_").upper()


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Merge defaults, the JSON file, the environment and flags.

    Args:
        path: The JSON file; None means ``$RUNEBOOK_CONFIG``, else ``<home>/config.json`` where it exists.
        environment: Variables; None means ``os.environ``.
        flags: Dotted names to values; None values are skipped.

    Raises:
        ConfigInvalid: If a file named explicitly is missing, or any value is unknown or out of range.
    """
    environment = os.environ if environment is None else environment
    overrides: dict[str, Any] = {}
    for dotted, _, _ in settings():
        raw = environment.get(environment_name(dotted))
        if raw:  # hosts pass on variables that were left empty
            _set(overrides, dotted, _decoded(dotted, raw))
    known = [dotted for dotted, _, _ in settings()]
    hint = f"Correct or remove it. Settings are: {', '.join(known)}."
    for dotted, value in (flags or {}).items():
        if dotted not in known:
            raise ConfigInvalid(f"there is no setting '{dotted}'.", hint=hint)
        if value is not None:
            _set(overrides, dotted, _decoded(dotted, value))
    home = _expanded(Path(str(overrides.get("home", Config.model_fields["home"].default))))
    named = path or (Path(environment["RUNEBOOK_CONFIG"]) if environment.get("RUNEBOOK_CONFIG") else None)
    values = _read(_expanded(named), required=True) if named else _read(home / CONFIG_NAME, required=False)
    merged = _merged(values, overrides)
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        dotted = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigInvalid(f"there is no setting '{dotted}'.", hint=hint) from None
        raise ConfigInvalid(f"setting '{dotted}': {first['msg']}.", hint=hint) from None
    for directory in (config.home, *config.schema_dirs, *config.prompt_dirs):
        _expanded(directory)
    return config


def example() -> str:
    """The text of ``config.example.json``: every setting at its default."""
    return json.dumps(Config().model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigInvalid(f"{str(path)!r}: {error}", hint="Write the folder out instead of using '~'.") from error


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return {}
        raise ConfigInvalid(f"the config file {path} does not exist.", hint="Create it or name another.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the config file {path} cannot be read: {error}.", hint="Mend the file.") from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigInvalid(
            f"the config file {path} is not JSON: line {error.lineno}: {error.msg}.", hint="Mend that line."
        ) from error
    if not isinstance(values, dict):
        raise ConfigInvalid(f"the config file {path} must hold one JSON object.", hint="See config.example.json.")
    return values


def _decoded(dotted: str, raw: Any) -> Any:
    paths, words = ("schema_dirs", "prompt_dirs"), ("secrets_allowed", "http.allowed_hosts", "http.allowed_origins")
    separator = os.pathsep if dotted in paths else "," if dotted in words else None
    if separator is None or not isinstance(raw, str):
        return raw
    if raw.lstrip().startswith("["):
        try:
            return json.loads(raw)
        except json.JSONDecodeError as error:
            raise ConfigInvalid(
                f"setting '{dotted}': {error.msg}.", hint=f"Write a JSON list, or the parts with {separator!r} between."
            ) from error
    return [part.strip() for part in raw.split(separator) if part.strip()]


def _set(target: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        target = target.setdefault(section, {})
    target[name] = value


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
