"""Templates: shipped ones are sound, a user's override them, and broken ones are refused by name and variable."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import ConfigInvalid
from memory_core.core.extract.prompts import SIZE_LIMIT_BYTES, PromptLibrary, TypeGuide, phases
from memory_core.core.memory.memory_type import MemoryType, MemoryTypeRegistry
from memory_core.core.text.tokens import count_tokens
from memory_core.runebook import Runebook
from tests.core.extract.stage import Stage, operations, talk
from tests.stores import write


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        file = path / f"{name.replace('__', '/')}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return path


def test_every_phase_ships_a_template_and_is_described() -> None:
    library = PromptLibrary()
    for name, phase in phases().items():
        assert all(text.strip() for text in (phase.purpose, *phase.variables.values()))
        rendered = library.render(name, {variable: f"<{variable}>" for variable in phase.variables})
        assert rendered
        assert all(f"<{variable}>" in rendered for variable in phase.variables), name


def test_a_folder_overrides_a_phase_and_later_folders_win(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", retry="First: {problem}", final="Schluss.")
    second = folder(tmp_path / "b", retry="再试一次:{problem}")
    library = PromptLibrary([first, second])
    assert library.render("retry", {"problem": "x"}) == "再试一次:x"
    assert library.render("final") == "Schluss."
    assert "Memory types" in library.render("system")


def test_values_are_put_in_literally_and_once(tmp_path: Path) -> None:
    library = PromptLibrary([folder(tmp_path, readings="{purpose}|{readings}")])
    assert library.render("readings", {"purpose": "{readings}", "readings": "{0.__class__}"}) == (
        "{readings}|{0.__class__}"
    )


def test_a_line_of_empty_variables_leaves_no_gap(tmp_path: Path) -> None:
    library = PromptLibrary([folder(tmp_path, readings="a\n{purpose}\n{readings}")])
    assert library.render("readings", {"readings": "b"}) == "a\nb"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("step", "{context} {conversation} {secret}", "{secret}"),
        ("step", "{context} and nothing else", "{conversation}"),
        ("system", "no types", "{types}"),
        ("brief", "{types} {conversation}", "{call}"),
        ("retry", "  \n", "no usable text"),
        ("steps", "a misspelt name", "names no prompt"),
        ("retry", "{problem}" + "x" * SIZE_LIMIT_BYTES, "larger than"),
        ("retry", "{problem}\x00", "no usable text"),
    ],
)
def test_a_broken_file_is_refused_by_name_and_variable(tmp_path: Path, name: str, text: str, told: str) -> None:
    folder(tmp_path, **{name: text})
    with pytest.raises(ConfigInvalid) as caught:
        PromptLibrary([tmp_path])
    assert f"{name}.md" in caught.value.message
    assert told in caught.value.message
    assert caught.value.hint


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="cannot be listed"):
        PromptLibrary([tmp_path / "absent"])
    (tmp_path / "retry.md").write_bytes(b"\xff\xfe{problem}")
    with pytest.raises(ConfigInvalid, match="not UTF-8"):
        PromptLibrary([tmp_path])
    (tmp_path / "retry.md").unlink()
    os.mkfifo(tmp_path / "retry.md")
    with pytest.raises(ConfigInvalid, match="not a file"):
        PromptLibrary([tmp_path])


def test_other_files_in_a_prompt_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    folder(tmp_path, README="about my prompts {anything}")
    assert PromptLibrary([tmp_path]).render("final") == PromptLibrary().render("final")


def test_a_type_is_described_in_the_users_words(tmp_path: Path, memory: Runebook) -> None:
    prompts = folder(tmp_path / "p", types__preferences="只记录饮食\n偏好。")
    stage = Stage(memory, prompt_dirs=[prompts])
    stage.extract(talk("你好"), operations(write("profile", content="x")))
    system = stage.requests[0].system
    assert "content [patch]. 只记录饮食 偏好。" in system
    assert "likes, dislikes" not in system
    assert "Who the user is" in system
    assert "只记录饮食 偏好。" in stage.brief(talk("你好")).text


def test_the_static_part_keeps_its_share_and_names_all_types(memory: Runebook) -> None:
    stage = Stage(memory)
    assert count_tokens(stage.loop.system) <= 5_000
    for known in memory.registry.list_all():
        assert re.search(rf"^- {known.name}(?: \(viking://[^)]+\))?: fields ", stage.loop.system, re.MULTILINE)
    assert "success_rate" not in stage.loop.system
    assert "total_calls" not in stage.loop.system


def test_counts_of_a_simple_type_may_be_written(memory: Runebook) -> None:
    memory.registry.register(custom(0, {"name": "visits", "type": "int64", "merge_op": "sum"}))
    assert "content [patch], visits [sum]" in TypeGuide(memory.registry, PromptLibrary()).text(9_000)


def custom(number: int, *fields: dict[str, Any]) -> MemoryType:
    return MemoryType.model_validate(
        {
            "name": f"custom{number}",
            "description": "A kind of its own. " + "词语很多。" * 60,
            "directory": f"viking://user/{{user_space}}/memories/custom{number}",
            "filename_template": "{title}.md",
            "fields": [{"name": "title", "merge_op": "immutable"}, {"name": "content"}, *fields],
        }
    )


def test_many_types_are_told_in_fewer_words_and_leave_room_for_the_conversation(memory: Runebook) -> None:
    for number in range(40):
        memory.registry.register(custom(number))
    stage = Stage(memory)
    assert count_tokens(stage.loop.system) <= 5_000
    assert "- custom39: fields title" in stage.loop.system
    assert stage.loop.conversation_tokens > 2_000


def test_the_smallest_prompt_still_holds_everything(memory: Runebook) -> None:
    stage = Stage(memory, prompt_tokens=6_000)
    long = talk(*["很长的话。" * 300, "Long words. " * 300] * 6)
    outcome = stage.extract(long, operations(write("x", a="b")), {"reasoning": "leave it", "operations": {}})
    assert len(stage.requests) == 2
    assert any("messages did not fit" in note for note in outcome.dropped)
    assert any("write x" in note and "withdrawn" in note for note in outcome.dropped)
    assert stage.loop.conversation_tokens > 500


def test_types_of_other_spaces_are_named_in_their_own(memory: Runebook) -> None:
    guide = TypeGuide(memory.registry, PromptLibrary(), "ann", "bot")
    assert "- profile (viking://user/ann/memories): " in guide.text(9_000)
    assert "viking://agent/bot/memories/tools" in guide.directories()
    assert TypeGuide(MemoryTypeRegistry(), PromptLibrary()).text(100) == ""
