"""Loading memory types from YAML: new types, overrides, and every way a file can be broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memory_core.core.errors import NotFound, SchemaInvalid
from memory_core.core.memory.memory_type import (
    SIZE_LIMIT_BYTES,
    MemoryType,
    MemoryTypeRegistry,
    builtin_schema_dir,
    resolve_category,
)
from memory_core.core.memory.names import render
from memory_core.core.memory.uri import MemoryUri

RECIPE = """\
name: recipes
description: A dish and how to cook it.
directory: "viking://user/{user_space}/memories/recipes"
filename_template: "{dish}.md"
fields:
  - name: dish
    merge_op: immutable
  - name: minutes
    type: int64
    merge_op: sum
    format: "{:,d} min"
  - name: content
"""
CHINESE = """\
name: recipes_zh
description: |
  菜谱:一道菜怎么做。
  例:"番茄炒蛋:先炒蛋,再炒番茄。"
directory: "viking://user/{user_space}/memories/菜谱"
filename_template: "菜谱_{菜名}.md"
fields:
  - {name: dish, merge_op: immutable}
  - {name: content, description: 做法}
""".replace("{菜名}", "{dish}")


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def load(folder: Path) -> tuple[MemoryTypeRegistry, list[SchemaInvalid]]:
    registry = MemoryTypeRegistry()
    return registry, registry.load_from_dir(folder)


def names(registry: MemoryTypeRegistry) -> list[str]:
    return [memory_type.name for memory_type in registry.list_all()]


def test_a_chinese_type_keeps_its_words_in_description_directory_and_file_name(tmp_path: Path) -> None:
    write(tmp_path, "菜谱.yml", CHINESE)
    registry, problems = load(tmp_path)
    assert problems == []
    recipe = registry.get("recipes_zh")
    assert recipe.description.startswith("菜谱:一道菜怎么做。")
    assert recipe.directory.endswith("/菜谱")
    assert render(recipe.filename_template, {"dish": "番茄炒蛋"}) == "菜谱_番茄炒蛋.md"


def test_a_later_folder_replaces_a_builtin_type_and_leaves_the_others(tmp_path: Path) -> None:
    registry = MemoryTypeRegistry()
    registry.load_from_dir(builtin_schema_dir())
    before = names(registry)
    mine = (builtin_schema_dir() / "notes.yaml").read_text(encoding="utf-8")
    write(tmp_path, "mine.yaml", mine + "salience: 0.9\nenabled: yes\n")
    assert registry.load_from_dir(tmp_path) == []
    assert registry.get("notes").salience == 0.9
    assert names(registry) == before


def test_a_disabled_type_takes_no_new_memories_but_its_files_keep_their_type(tmp_path: Path) -> None:
    write(tmp_path, "recipes.yaml", RECIPE + "enabled: false\n")
    registry, _ = load(tmp_path)
    assert registry.list_all() == []
    with pytest.raises(NotFound, match="'recipes' is enabled"):
        registry.get("recipes")
    uri = MemoryUri.parse("viking://user/default/memories/recipes/番茄炒蛋.md")
    found = registry.type_at(uri)
    assert found is not None
    assert found.name == "recipes"


@pytest.mark.parametrize(
    ("path", "named", "expected"),
    [
        ("user/default/memories/preferences/咖啡口味.md", None, "preferences"),
        ("user/other/memories/preferences/Tea.md", None, "preferences"),
        ("user/default/memories/preferences/mem_8f3a.md", "facts", "facts"),
        ("user/default/memories/preferences/mem_8f3a.md", "unheard_of", "preferences"),
        ("user/default/memories/events/2026/Launch.md", None, "events"),
        ("agent/default/memories/tools/web_search.md", None, "tools"),
        ("archive/agent/default/memories/cases/A → B.md", None, "cases"),
        ("user/default/memories/profile.md", None, "profile"),
        ("user/default/memories/other.md", None, None),
        ("user/default/memories/unknown/profile.md", None, None),
        ("user/default/memories/tools/web_search.md", None, None),
        ("user/default/memories/preferences/.abstract.md", None, None),
        ("user/default/memories/preferences", None, None),
        ("user/default/logs/2026-03-17.md", None, None),
        ("", None, None),
    ],
)
def test_a_files_type_is_its_trailers_else_its_directorys(
    registry: MemoryTypeRegistry, path: str, named: str | None, expected: str | None
) -> None:
    found = registry.type_at(MemoryUri.parse(f"viking://{path}"), named)
    assert (None if found is None else found.name) == expected


def edited(old: str, new: str) -> str:
    assert RECIPE.count(old) == 1
    return RECIPE.replace(old, new)


BROKEN = {
    "syntax": (edited("description: A", "description: x: A"), 2, "not valid YAML"),
    "unclosed bracket": (edited("  - name: content", "  - {name: content"), 13, "not valid YAML"),
    "tab": (edited("    type:", "\ttype:"), 9, "not valid YAML"),
    "key twice": (
        edited("    merge_op: sum\n", "    merge_op: sum\n    type: bool\n"),
        11,
        "'type' appears twice",
    ),
    "missing key": (edited("description: A dish and how to cook it.\n", ""), 1, "'description' is missing"),
    "missing field name": (edited("  - name: content", "  - type: string"), 12, "'name' is missing"),
    "unknown key": (edited("    merge_op: sum", "    mergeop: sum"), 10, "'mergeop' is unknown"),
    "unknown root key": (RECIPE + "colour: red\n", 13, "'colour' is unknown"),
    "unknown type": (edited("int64", "integer"), 9, "fields[1].type"),
    "wrong shape": (edited("name: recipes", "name: [recipes]"), 1, "name: "),
    "name with a line end": (edited("name: recipes", 'name: "recipes\\n"'), 1, "recipes"),
    "bad name": (edited("name: recipes", "name: My Recipes"), 1, "My Recipes"),
    "salience out of range": (RECIPE + "salience: 3\n", 13, "salience"),
    "format with code": (edited("{:,d} min", "{0.__class__}"), 11, "format"),
    "format with two placeholders": (edited("{:,d} min", "{:,d} {:,d}"), 11, "format"),
    "format padding to a gigabyte": (edited("{:,d} min", "{:999999999d}"), 11, "format"),
    "format on text": (edited("type: int64\n    merge_op: sum", "type: string"), 10, "format"),
    "unquoted format": (edited('"{:,d} min"', "{:.1f}"), 11, "not valid YAML"),
    "sum of text": (edited("type: int64", "type: string").replace('    format: "{:,d} min"\n', ""), 8, "sum"),
    "unknown field in file name": (edited('"{dish}.md"', '"{dich}.md"'), 4, "dich"),
    "no content field": (edited("  - name: content", "  - name: body"), 5, "content"),
    "field declared twice": (edited("  - name: content", "  - name: content\n  - name: content"), 5, "twice"),
    "reserved field": (edited("  - name: content", "  - name: content\n  - name: tags"), 13, "reserved"),
    "average of nothing": (
        RECIPE + "  - {name: mean, type: float32, merge_op: avg, avg: {sum: minutes, count: cooked}}\n",
        13,
        "cooked",
    ),
    "other placeholder": (edited("{user_space}", "{home}"), 3, "directory"),
    "way out": (edited("memories/recipes", "memories/../../x"), 3, "directory"),
    "other scope": (edited("viking://user", "viking://session"), 3, "directory"),
    "path in file name": (edited('"{dish}.md"', '"../{dish}.md"'), 4, "portable"),
    "attribute access": (edited('"{dish}.md"', '"{dish.x}.md"'), 4, "placeholder"),
    "sum names the file": (edited('"{dish}.md"', '"{minutes}.md"'), 4, "minutes"),
    "tag": (edited("A dish and how to cook it.", "!!python/object/apply:os.getcwd []"), 2, "tag"),
    "loop": (edited("A dish and how to cook it.", "&a [*a]"), 2, "anchor"),
    "second document": (RECIPE + "---\nname: other\n", 13, "second document"),
    "a list": ("- a\n- b\n", 1, "mapping"),
    "control character": (edited("cook it", "cook\x07 it"), 2, "control character"),
    "empty": ("", 1, "empty"),
    "comment only": ("# nothing yet\n", 1, "empty"),
    "deep": ("name: " + "[" * 500, 1, "nested deeper"),
    "deep beyond libyaml": ("name: " + "[" * 200_000, 1, "nest"),
    "too big": ("# " + "x" * SIZE_LIMIT_BYTES + "\n" + RECIPE, 1, "larger than 256 KiB"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_reported_with_its_line_and_the_others_load(tmp_path: Path, case: str) -> None:
    text, line, wording = BROKEN[case]
    broken = write(tmp_path, "broken.yaml", text)
    write(tmp_path, "a.yaml", CHINESE)
    write(tmp_path, "z.yaml", RECIPE.replace("name: recipes", "name: dishes"))
    registry, problems = load(tmp_path)
    assert [str(p).startswith(f"{broken}:{line}: ") for p in problems] == [True], problems
    assert wording in problems[0].message
    assert problems[0].hint
    assert names(registry) == ["dishes", "recipes_zh"]
    assert registry.problems == tuple(problems)


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path, "broken.yaml", edited("int64", "integer") + "colour: red\n")
    _, problems = load(tmp_path)
    assert len(problems) == 2
    assert "broken.yaml:9: " in problems[0].message
    assert "broken.yaml:13: " in problems[1].message


def test_an_override_that_is_broken_leaves_the_builtin_in_use(tmp_path: Path) -> None:
    registry = MemoryTypeRegistry()
    registry.load_from_dir(builtin_schema_dir())
    original = registry.get("notes")
    write(tmp_path, "notes.yaml", "name: notes\n")
    assert len(registry.load_from_dir(tmp_path)) == 4
    assert registry.get("notes") is original


def test_text_that_is_not_utf8_is_reported_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "gbk.yaml").write_bytes(b"name: x\ndescription: " + "菜谱".encode("gbk") + b"\n")
    _, problems = load(tmp_path)
    assert "gbk.yaml:2: not UTF-8" in problems[0].message


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "recipes.yaml").write_bytes(b"\xef\xbb\xbf" + RECIPE.replace("\n", "\r\n").encode())
    registry, problems = load(tmp_path)
    assert problems == []
    assert names(registry) == ["recipes"]


def test_dangling_links_folders_and_missing_directories_are_reported(tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / ".hidden.yaml").write_bytes(b"\xff")
    (tmp_path / "readme.txt").write_text("not a type", encoding="utf-8")
    registry, problems = load(tmp_path)
    assert [Path(p.message.split(":1: ")[0]).name for p in problems] == ["folder.yaml", "gone.yaml"]
    missing = registry.load_from_dir(tmp_path / "missing")
    assert "cannot be listed" in missing[0].message
    assert len(registry.problems) == 3


def test_two_files_of_one_folder_may_not_declare_the_same_type(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", RECIPE)
    write(tmp_path, "b.yaml", RECIPE.replace("A dish", "Another dish"))
    registry, problems = load(tmp_path)
    assert "b.yaml:1: type 'recipes' is already declared by a.yaml" in problems[0].message
    assert registry.get("recipes").description.startswith("A dish")


def test_problems_of_a_mended_folder_are_gone_after_loading_it_again(tmp_path: Path) -> None:
    path = write(tmp_path, "recipes.yaml", "name: recipes\n")
    registry, problems = load(tmp_path)
    assert problems
    path.write_text(RECIPE, encoding="utf-8")
    assert registry.load_from_dir(tmp_path) == []
    assert registry.problems == ()


def test_values_are_typed_by_the_model_and_not_by_yaml(tmp_path: Path) -> None:
    write(tmp_path, "recipes.yaml", edited("A dish and how to cook it.", "2026-99-99") + "half_life_days: 30\n")
    registry, problems = load(tmp_path)
    assert problems == []
    recipe = registry.get("recipes")
    assert (recipe.description, recipe.half_life_days) == ("2026-99-99", 30.0)


def test_anchors_may_repeat_a_text_within_a_file(tmp_path: Path) -> None:
    text = edited("A dish and how to cook it.", "&what 一道菜").replace(
        "  - name: content", "  - {name: content, description: *what}"
    )
    write(tmp_path, "recipes.yaml", text)
    registry, problems = load(tmp_path)
    assert problems == []
    assert registry.get("recipes").fields[-1].description == "一道菜"


def test_an_unknown_name_is_answered_with_the_known_ones_and_the_closest(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", CHINESE)
    write(tmp_path, "b.yaml", RECIPE)
    registry, _ = load(tmp_path)
    with pytest.raises(NotFound) as caught:
        registry.get("Recipe")
    assert caught.value.hint == "Did you mean 'recipes'? Known types: recipes, recipes_zh."
    with pytest.raises(NotFound, match="No memory types are loaded"):
        MemoryTypeRegistry().get("notes")


def test_registering_a_type_outside_the_place_of_memories_is_refused() -> None:
    stray = MemoryType.model_validate(
        {
            "name": "stray",
            "description": "",
            "directory": "viking://session/{user_space}/x",
            "filename_template": "x.md",
            "fields": [{"name": "content"}],
        }
    )
    registry = MemoryTypeRegistry()
    with pytest.raises(SchemaInvalid, match="directory"):
        registry.register(stray)
    proper = stray.model_copy(update={"directory": "viking://agent/{agent_space}/memories/x"})
    registry.register(proper)
    assert registry.get("stray") is proper


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("preference", "preferences"),
        ("Preferences", "preferences"),
        ("user_knowledge", "facts"),
        (" task ", "tasks"),
        ("PATTERN", "patterns"),
        ("assistant-knowledge", "assistant_knowledge"),
        ("偏好", "preferences"),
        ("通用", "notes"),
        ("weather", None),
        ("", None),
    ],
)
def test_categories_of_other_systems_name_our_types(category: str, expected: str | None) -> None:
    assert resolve_category(category) == expected


def test_every_builtin_name_is_a_category_and_every_category_a_builtin_type(registry: MemoryTypeRegistry) -> None:
    assert [resolve_category(name) for name in names(registry)] == names(registry)


def test_importing_the_registry_does_not_import_yaml() -> None:
    script = "import sys, memory_core.core.memory.memory_type; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_pure_python_yaml_reports_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (text, _, _) in enumerate(BROKEN.values()):
        if len(text) < 1_000:
            write(tmp_path, f"{number:03}.yaml", text)
    found = [p.message.split(": ")[0] for p in load(tmp_path)[1]]
    assert len(found) > 30
    monkeypatch.delattr("yaml.CSafeLoader")
    assert [p.message.split(": ")[0] for p in load(tmp_path)[1]] == found
