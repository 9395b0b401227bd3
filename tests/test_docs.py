"""The documentation names everything there is, and only that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_reference import PAGES
from memory_core.core.config import Config, environment_name, example, settings
from memory_core.core.extract.prompts import phases
from memory_core.open_store import load_registry
from server.protocol.session import MemorySession
from server.protocol.tools import build_tools

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
PROMPTS = (ROOT / "docs" / "prompts.md").read_text(encoding="utf-8")


def opened() -> None:
    raise AssertionError("no store is needed to describe the tools")


def commands() -> list[str]:
    run = subprocess.run(
        [sys.executable, "-m", "server.cli", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return re.findall(r"^    (\w+) ", run.stdout, re.MULTILINE)


def test_the_example_config_is_what_the_settings_generate() -> None:
    assert (ROOT / "config.example.json").read_text(encoding="utf-8") == example()
    Config.model_validate(json.loads(example()))


def default_of(value: object) -> str:
    if value in ("", ()):
        return "empty" if value == "" else "none"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


@pytest.mark.parametrize(("name", "default", "description"), list(settings()))
def test_every_setting_is_documented_with_its_variable_default_and_meaning(
    name: str, default: object, description: str
) -> None:
    row = f"| `{name}` | `{environment_name(name)}` | {default_of(default)} | {description} |"
    assert row in SETTINGS


def test_only_settings_that_exist_are_documented() -> None:
    known = {name for name, _, _ in settings()}
    assert set(re.findall(r"^\| `([a-z_.]+)` \| `RUNEBOOK_", SETTINGS, re.MULTILINE)) == known


@pytest.mark.parametrize("tool", [tool.name for tool in build_tools(MemorySession(opened))])  # type: ignore[arg-type]
def test_every_tool_is_documented(tool: str) -> None:
    assert f"`{tool}" in README


def test_every_command_is_documented() -> None:
    found = commands()
    assert len(found) >= 10
    for command in found:
        assert f"| `runebook {command}" in COMMANDS, command


def test_only_commands_that_exist_are_documented() -> None:
    assert set(re.findall(r"^\| `runebook (\w+)", COMMANDS, re.MULTILINE)) == set(commands())


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 150


def test_the_library_does_what_its_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "python-library.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("8443") >= 3


@pytest.mark.parametrize("name", [known.name for known in load_registry(Config()).list_all()])
def test_every_memory_type_is_documented(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_makes(name: str) -> None:
    kept = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert kept == PAGES[name](), "run: python docs/make_reference.py docs/reference"


def test_the_readme_names_the_test_command_that_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^python3 -m venv .* && \.venv/bin/pytest -n auto$", README, re.MULTILINE)
    assert re.search(r"^\.venv/bin/pytest -n auto$", script, re.MULTILINE)


@pytest.mark.parametrize("phase", phases())
def test_every_prompt_and_its_variables_are_documented(phase: str) -> None:
    section = PROMPTS.partition(f"### `{phase}.md`")[2].partition("\n### ")[0]
    assert phases()[phase].purpose in section
    for variable, meaning in phases()[phase].variables.items():
        required = " (required)" if variable in phases()[phase].required else ""
        assert f"| `{{{variable}}}`{required} | {meaning} |" in section
