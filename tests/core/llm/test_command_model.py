"""A model behind a program: the command lines of the presets, what is sent, what is read, and what is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.caller import ASIDE
from memory_core.core.config import LLMConfig, load
from memory_core.core.errors import ConfigInvalid, ModelUnavailable
from memory_core.core.llm.client import Completion, LLMRequest, TokenUsage, Turn
from memory_core.core.llm.command_model import CommandModel, command_line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are scripts with a first line")
_SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
#: Says how it was called, in the place of an answer.
_MIRROR = """#!{python}
import json, os, pathlib, sys
said, here = sys.stdin.buffer.read().decode(), pathlib.Path.cwd()
files = {{str(path.relative_to(here)): path.read_text() for path in here.rglob("*") if path.is_file()}}
print(json.dumps({{"argv": sys.argv[1:], "said": said, "files": files, "aside": os.environ.get("{aside}"),
                   "inside": os.environ.get("CLAUDECODE")}}))
"""


def program(folder: Path, name: str, text: str = _MIRROR) -> str:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.format(python=sys.executable, aside=ASIDE), encoding="utf-8")
    path.chmod(0o700)
    return str(path)


def asked(folder: Path, *command: str, schema: Any = _SCHEMA, turns: tuple[Turn, ...] = (), **llm: Any) -> Completion:
    config = LLMConfig(provider="command", command=command, **llm)
    request = LLMRequest("The rules.", turns or (Turn("user", "Wo? 在哪里？"),), schema, "Place", 256)
    return CommandModel(config, folder / "aside", lambda _limit: True).complete(request, 60.0)


def mirrored(folder: Path, *command: str, **given: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(asked(folder, *command, **given).text)
    return told


def test_claude_code_is_called_as_its_documentation_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    told = mirrored(tmp_path, program(tmp_path, "claude"))
    words = "-p --output-format json --model haiku --effort low --tools  --safe-mode --strict-mcp-config"
    words += " --disable-slash-commands --no-session-persistence --system-prompt"
    assert told["argv"][:14] == words.split(" ")
    assert told["argv"][15] == "--json-schema"
    assert json.loads(told["argv"][16])["required"] == ["place"]
    assert (told["aside"], told["inside"], told["files"]) == ("1", None, {})
    assert "The rules." in told["said"]
    assert told["said"].rstrip().endswith("Wo? 在哪里？")


def test_codex_finds_the_schema_in_a_file_and_the_prompt_on_its_input(tmp_path: Path) -> None:
    told = mirrored(tmp_path, program(tmp_path, "codex"), model="gpt-x")
    argv = told["argv"]
    assert (argv[0], argv[-1]) == ("exec", "-")
    assert argv[argv.index("--model") + 1] == "gpt-x"
    assert {"--ephemeral", "--ignore-user-config", "--skip-git-repo-check"} <= set(argv)
    assert argv[argv.index("--sandbox") + 1] == "read-only"
    (text,) = told["files"].values()
    assert json.loads(text)["required"] == ["place"]
    assert argv[argv.index("--output-schema") + 1] == str(tmp_path / "aside" / next(iter(told["files"])))
    assert "--output-schema" not in mirrored(tmp_path, program(tmp_path, "codex"), schema={})["argv"]


def test_gemini_has_hooks_and_tools_switched_off_in_the_folder_where_it_works(tmp_path: Path) -> None:
    told = mirrored(tmp_path, program(tmp_path, "gemini"))
    settings = json.loads(told["files"][".gemini/settings.json"])
    assert settings["hooksConfig"] == {"enabled": False}
    argv = told["argv"]
    assert argv[argv.index("--model") + 1] == "flash-lite"
    assert argv[argv.index("--output-format") + 1] == "json"
    assert "place" in told["said"]  # the shape of the answer stands in the prompt


def test_ollama_needs_a_model(tmp_path: Path) -> None:
    ollama = program(tmp_path, "ollama")
    with pytest.raises(ModelUnavailable, match=r"llm\.model"):
        asked(tmp_path, ollama)
    argv = mirrored(tmp_path, ollama, model="qwen3:4b")["argv"]
    assert argv == ["run", "--format", "json", "--think=false", "--hidethinking", "--nowordwrap", "qwen3:4b"]


def test_any_other_program_is_called_as_it_is_written_and_no_shell_reads_it(tmp_path: Path) -> None:
    words = (program(tmp_path, "claude"), "--mine", "{model}", "$HOME; echo *", "{other}")
    assert mirrored(tmp_path, *words, model="m")["argv"] == ["--mine", "m", "$HOME; echo *", "{other}"]


def test_a_batch_file_of_windows_is_given_no_json_on_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.llm.command_model.shutil.which", lambda _name: r"C:\npm\claude.CMD")
    request = LLMRequest("", (Turn("user", "?"),), _SCHEMA, "Place", 256)
    line = command_line(("claude-code",), "", request, tmp_path)
    assert not line.keeps_schema
    assert not [word for word in line.words if set(word) & set('"%&|<>^')]


def test_what_was_answered_before_is_shown_again(tmp_path: Path) -> None:
    turns = (Turn("user", "one"), Turn("assistant", "two"), Turn("user", "three"))
    said = mirrored(tmp_path, program(tmp_path, "mine"), "-", schema={}, turns=turns)["said"]
    assert "<request>\none\n</request>\n\n<your_answer>\ntwo\n</your_answer>\n\n<request>\nthree" in said


@pytest.mark.parametrize(
    ("printed", "answer"),
    [
        ({"result": "x", "structured_output": {"place": "attic"}, "usage": {"input_tokens": 7}}, '{"place": "attic"}'),
        ({"response": '{"place": "attic"}', "stats": {}}, '{"place": "attic"}'),
        ({"place": "attic"}, '{"place": "attic"}'),
    ],
)
def test_the_json_that_hosts_put_around_an_answer_is_taken_off(
    tmp_path: Path, printed: dict[str, Any], answer: str
) -> None:
    script = "#!{python}\nprint(" + repr(json.dumps(printed)).replace("{", "{{").replace("}", "}}") + ")\n"
    found = asked(tmp_path, program(tmp_path, "claude", script))
    assert found.text == answer
    assert found.usage == TokenUsage(prompt=7 if "usage" in printed else 0, requests=1)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('print(\'{{"is_error": true, "result": "Credit balance is too low"}}\')', "Credit balance is too low"),
        ('print(\'{{"error": {{"message": "quota"}}}}\')', "quota"),
        ("", "said nothing"),
        ("import sys; sys.exit('no login')", "no login"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "wrote more than [0-9,]+ bytes"),
    ],
)
def test_a_program_that_fails_says_why(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(ModelUnavailable, match=why):
        asked(tmp_path, program(tmp_path, "claude", "#!{python}\n" + script))


def test_calls_that_are_used_up_and_a_program_that_is_missing_name_no_conversation(tmp_path: Path) -> None:
    config = LLMConfig(provider="command", command=(program(tmp_path, "mine"),), calls_per_day=1)
    asked_for = LLMRequest("", (Turn("user", "?"),), {}, "", 256, purpose="chat")
    with pytest.raises(ModelUnavailable, match="used up") as caught:
        CommandModel(config, tmp_path / "aside", lambda _limit: False).complete(asked_for, 60.0)
    assert caught.value.hint == "Raise llm.calls_per_day, or wait until tomorrow."
    with pytest.raises(ModelUnavailable, match="not found") as caught:
        asked(tmp_path, str(tmp_path / "absent"))
    assert "conversation" not in caught.value.hint


def test_a_command_is_one_line_or_a_list(tmp_path: Path) -> None:
    def read(command: Any) -> tuple[str, ...]:
        (tmp_path / "config.json").write_text(json.dumps({"llm": {"provider": "command", "command": command}}))
        return load(environment={"RUNEBOOK_HOME": str(tmp_path)}).llm.command

    assert read("codex") == ("codex",)
    assert read("'/opt/my program' --quiet") == ("/opt/my program", "--quiet")
    assert read(["a b", "c"]) == ("a b", "c")
    given = {"RUNEBOOK_HOME": str(tmp_path), "RUNEBOOK_LLM_COMMAND": '["x y", "z"]'}
    assert load(environment=given).llm.command == ("x y", "z")
    for wrong in ("", "'open", 7):
        with pytest.raises(ConfigInvalid):
            read(wrong)
    assert os.environ.get(ASIDE) is None
