"""The types that ship with Runebook: fields, operations, places, file names."""

from __future__ import annotations

import pytest

from memory_core.core.errors import RunebookError
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.names import render
from memory_core.core.memory.uri import MemoryUri

NAMES = (
    *("assistant_knowledge", "cases", "entities", "events", "facts", "notes", "patterns", "preferences", "profile"),
    *("reflections", "skills", "tasks", "tools"),
)
TOOL_LABELS = """\
Tool: {tool_name}

Static Description: "{static_desc}"

Tool Memory Context:
Based on {total_calls} historical calls:
- Success rate: {success_rate} ({success_count} successful, {fail_count} failed)
- Avg time: {avg_time}, Avg tokens: {avg_tokens}
- Best for: {best_for}
- Optimal params: {optimal_params}
- Common failures: {common_failures}
- Recommendation: {recommendation}

{guidelines}"""
SKILL_LABELS = """\
Skill: {skill_name}

Skill Memory Context:
Based on {total_executions} historical executions:
- Success rate: {success_rate} ({success_count} successful, {fail_count} failed)
- Best for: {best_for}
- Recommended flow: {recommended_flow}
- Key dependencies: {key_dependencies}
- Common failures: {common_failures}
- Recommendation: {recommendation}

{guidelines}"""


def test_exactly_the_missions_eight_types_and_our_five_are_built_in(registry: MemoryTypeRegistry) -> None:
    assert [memory_type.name for memory_type in registry.list_all()] == list(NAMES)


def test_only_tools_and_skills_are_rendered_and_keep_the_missions_labels(
    registry: MemoryTypeRegistry,
) -> None:
    templates = {t.name: t.content_template for t in registry.list_all() if t.template_mode}
    assert templates == {"tools": TOOL_LABELS, "skills": SKILL_LABELS}


def test_the_success_rate_of_a_skill_is_a_share_of_its_executions(registry: MemoryTypeRegistry) -> None:
    skill_rate = registry.get("skills").field("success_rate")
    assert skill_rate is not None
    assert skill_rate.avg is not None
    assert (skill_rate.avg.sum, skill_rate.avg.count) == ("success_count", "total_executions")
    assert (skill_rate.avg.scale, skill_rate.format) == (100.0, "{:.1f}%")


@pytest.mark.parametrize("name", NAMES)
def test_every_type_and_field_tells_a_model_what_it_is_for(registry: MemoryTypeRegistry, name: str) -> None:
    memory_type = registry.get(name)
    assert "English or Chinese" in memory_type.description
    assert "Use it" in memory_type.description
    assert "Leave out" in memory_type.description
    assert all(len(field.description) > 20 for field in memory_type.fields)


def test_guidelines_name_the_three_english_headings(registry: MemoryTypeRegistry) -> None:
    for name in ("tools", "skills"):
        guidelines = registry.get(name).field("guidelines")
        assert guidelines is not None
        assert all(h in guidelines.description for h in ('"## Guidelines"', '"### Good Cases"', '"### Bad Cases"'))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["Python code style", "支付系统", "乱码 → UTF-8", 'a/b: "c"?'])
def test_file_names_of_english_and_chinese_keys_keep_their_meaning_and_fit_a_uri(
    registry: MemoryTypeRegistry, name: str, value: str
) -> None:
    memory_type = registry.get(name)
    rendered = render(memory_type.filename_template, dict.fromkeys(memory_type.key_fields, value))
    directory = memory_type.directory.format(user_space="default", agent_space="default")
    assert MemoryUri.parse(directory).child(rendered).name == rendered
    if memory_type.key_fields and value in ("Python code style", "支付系统"):
        assert rendered == "_".join([value] * len(memory_type.key_fields)) + ".md"


@pytest.mark.parametrize("name", NAMES)
def test_keys_never_change_and_no_two_types_share_a_directory(registry: MemoryTypeRegistry, name: str) -> None:
    memory_type = registry.get(name)
    keys = [memory_type.field(key) for key in memory_type.key_fields]
    assert all(key is not None and key.merge_op == "immutable" for key in keys)
    assert [t.name for t in registry.list_all() if t.directory == memory_type.directory] == [name]


def test_profile_outweighs_the_other_types(registry: MemoryTypeRegistry) -> None:
    assert {t.name: t.salience for t in registry.list_all() if t.salience != 0.5} == {"profile": 0.8}


def test_asking_for_a_category_of_another_system_points_to_the_type(registry: MemoryTypeRegistry) -> None:
    with pytest.raises(RunebookError, match="Did you mean 'patterns'"):
        registry.get("procedural")
