"""Hosts share a server where they ask for the same store, version and settings, and only there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import load
from server.local.shared_server import Place, place_of


def place(home: Path, *flags: str, config: Path | None = None, **environment: str) -> Place:
    return place_of(str(home), None if config is None else str(config), flags, environment)


def test_the_same_wishes_mean_the_same_server_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "家"
    same = {
        place(home).settings,
        place(Path("家")).settings,
        place_of(None, None, (), {"RUNEBOOK_HOME": str(home)}).settings,
        place_of(None, None, (f"home={home}",), {"PATH": "/elsewhere"}).settings,
    }
    assert len(same) == 1


@pytest.mark.parametrize("name", ["flag", "variable", "file", "key", "home"])
def test_other_wishes_mean_another_server(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    plain = place(home).settings
    if name == "file":
        (home / "config.json").write_text('{"user_space": "other"}', encoding="utf-8")
    others: dict[str, Any] = {
        "flag": lambda: place(home, "private_mode=true"),
        "variable": lambda: place(home, RUNEBOOK_USER_SPACE="other"),
        "file": lambda: place(home),
        "key": lambda: place(home, ANTHROPIC_API_KEY="another"),
        "home": lambda: place(tmp_path / "elsewhere"),
    }
    assert others[name]().settings != plain


@pytest.mark.parametrize("how", ["flag", "variable", "file"])
def test_folders_named_from_the_working_directory_mean_a_server_that_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if how == "file":
        (home / "config.json").write_text('{"schema_dirs": ["types"]}', encoding="utf-8")
    flags = ("schema_dirs=types",) if how == "flag" else ()
    environment: dict[str, Any] = {"RUNEBOOK_SCHEMA_DIRS": "types"} if how == "variable" else {}
    found = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "types").mkdir(parents=True)
        monkeypatch.chdir(folder)
        asked = place(home, *flags, **environment)
        assert asked.folder == folder
        found.add(asked.settings)
    assert len(found) == 2


def test_the_options_lead_another_process_to_the_same_store_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text('{"user_space": "lin"}', encoding="utf-8")
    asked = place_of("store", "mine.json", ("embedding.provider=none",), {})
    monkeypatch.chdir(os.sep)
    options = dict(zip(asked.options[::2], asked.options[1::2], strict=True))
    name, _, value = options["--set"].partition("=")
    config = load(Path(options["--config"]), {}, {"home": options["--home"], name: value})
    assert (config.root, config.user_space, config.embedding.provider) == (tmp_path / "store", "lin", "none")
    assert place_of(options["--home"], options["--config"], (options["--set"],), {}).settings == asked.settings
