"""Templates read backwards: all of a body is accounted for, or nothing is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.memory.memory_type import FieldValue, MemoryType, MemoryTypeRegistry, builtin_schema_dir
from memory_core.core.memory.names import stem_keys
from memory_core.core.memory.template import behind, captured, missing_sums, number, recover, render

REGISTRY = MemoryTypeRegistry()
REGISTRY.load_from_dir(builtin_schema_dir())
TOOLS, SKILLS, EVENTS = (REGISTRY.get(name) for name in ("tools", "skills", "events"))

COUNTS = st.integers(0, 10**6)
PROSE = st.sampled_from(["", "Reference pages", "先列目录;再读", "a → b", "line one\nline two", "50% (of them)"])


@given(COUNTS, COUNTS, COUNTS, PROSE, PROSE, PROSE)
def test_what_was_rendered_is_recovered(
    calls: int, good: int, tokens_each: int, best_for: str, advice: str, guide: str
) -> None:
    fields: dict[str, FieldValue] = {
        "tool_name": "搜索 search",
        "static_desc": 'says "hi"',
        "total_calls": calls,
        "success_count": good,
        "fail_count": 2,
        "total_tokens": calls * tokens_each,
        "best_for": best_for,
        "recommendation": advice,
        "guidelines": guide,
    }
    expected = {name: value for name, value in fields.items() if value != ""}
    if not calls:
        del expected["total_tokens"]
    assert recover(TOOLS, render(TOOLS, fields)) == expected


def test_sums_follow_from_the_averages_that_a_text_shows() -> None:
    body = render(TOOLS, {"tool_name": "t", "total_calls": 100, "total_time_ms": 120_000, "total_tokens": 150_000})
    assert "Avg time: 1.2s, Avg tokens: 1500" in body
    found = recover(TOOLS, body.replace("1.2s", "150ms")) or {}
    assert (found["total_time_ms"], found["total_tokens"]) == (15_000, 150_000)


def test_words_of_a_person_are_not_a_rendering() -> None:
    body = render(SKILLS, {"skill_name": "s", "total_executions": 3})
    assert recover(SKILLS, body) == {"skill_name": "s", "total_executions": 3}
    for changed in ("My own words.\n\n" + body, body.replace("Based on 3", "Based on three"), "", "技能说明"):
        assert recover(SKILLS, changed) is None


def test_a_body_tells_what_the_trailer_lacks_unless_they_disagree() -> None:
    body = render(SKILLS, {"skill_name": "s", "total_executions": 1200, "best_for": "问卷\n清洗"})
    assert behind(SKILLS, {"total_executions": "1,200"}, body) == {
        "skill_name": "s",
        "total_executions": "1,200",
        "best_for": "问卷\n清洗",
    }
    assert behind(SKILLS, {"best_for": "问卷 清洗"}, body) is not None
    assert behind(SKILLS, {"total_executions": 1201}, body) is None
    assert behind(SKILLS, {"best_for": "问卷"}, body) is None


def of_template(content_template: str) -> MemoryType:
    return MemoryType.model_validate(
        {
            "name": "pair",
            "description": "d",
            "directory": "viking://user/{user_space}/memories/pair",
            "filename_template": "{a}.md",
            "content_template": content_template,
            "fields": [{"name": "a"}, {"name": "b"}],
        }
    )


def test_a_type_without_template_or_with_values_side_by_side_recovers_nothing() -> None:
    assert captured(EVENTS, "any text") is None
    assert captured(of_template("{a}{b} end"), "xy end") is None


def test_text_below_a_template_that_has_an_end_is_no_part_of_it() -> None:
    assert captured(of_template("{a}: {b}, end"), "甲: 乙, end\n") == {"a": "甲", "b": "乙"}
    assert captured(of_template("{a}: {b}, end"), "甲: 乙, end\n补充") is None


@pytest.mark.parametrize(("rate", "count"), [("92.0%", 92), (92, 92), (0.92, 92), ("0.4%", 0), (1, 100)])
def test_a_rate_is_a_percentage_or_a_share(rate: object, count: int) -> None:
    assert missing_sums(TOOLS, {"total_calls": 100}, {"success_rate": rate}) == {"success_count": count}


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("1,234", 1234.0),
        ("150ms", 0.15),
        ("-2.5 s", -2.5),
        (".5", 0.5),
        ("", None),
        ("n/a", None),
        (True, None),
        ("1e400", None),
        (10**400, None),
        (float("nan"), None),
    ],
)
def test_numbers_are_read_as_they_are_shown(shown: object, value: float | None) -> None:
    assert number(shown) == value


@pytest.mark.parametrize(
    ("stem", "keys"),
    [
        ("2026-03-17_决定采用双活", {"event_time": "2026-03-17", "event_name": "决定采用双活"}),
        ("2026-03 Launch", {"event_time": "2026-03", "event_name": "Launch"}),
        ("Launch", {"event_name": "Launch"}),
        ("20260317x", {"event_name": "20260317x"}),
    ],
)
def test_a_file_name_shows_its_key(stem: str, keys: dict[str, str]) -> None:
    assert stem_keys(EVENTS, stem) == keys
