"""A call failed if its answer says so: measured on answers as they look in real work.

``fixtures/tool_answers.json`` holds ``[tool, arguments, answer, failed]`` in both languages and the shapes of the usual
hosts, with traps: texts that speak of errors and are none. Those ``aside`` were not used to make the patterns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from memory_core.core.memory.message_shapes import parse_messages
from memory_core.features.failures import says_failed, tells_result, without_wrapping
from memory_core.features.tool_counts import finished_calls

Answer: TypeAlias = tuple[str, Any, str, bool]
_ALL = json.loads((Path(__file__).parents[1] / "fixtures" / "tool_answers.json").read_text(encoding="utf-8"))
ASIDE: list[Answer] = _ALL.pop("aside")
KNOWN: list[Answer] = [answer for answers in _ALL.values() for answer in answers]


@pytest.mark.parametrize(("tool", "arguments", "answer", "failed"), KNOWN)
def test_an_answer_says_whether_the_call_failed(tool: str, arguments: object, answer: str, failed: bool) -> None:
    assert says_failed(tool, arguments, answer) is failed


def test_answers_that_nobody_thought_of_are_judged_with_care() -> None:
    found = [each for each in ASIDE if says_failed(*each[:3])]
    right = [each for each in found if each[3]]
    assert len(right) / len(found) >= 0.9
    assert len(right) / sum(each[3] for each in ASIDE) >= 0.7


def _anthropic(at: int, entry: Answer) -> list[object]:
    tool, arguments, answer, _ = entry
    call = {"type": "tool_use", "id": f"c{at}", "name": tool, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": [{"type": "text", "text": answer}]}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _openai(at: int, entry: Answer) -> list[object]:
    tool, arguments, answer, _ = entry
    call = {"id": f"c{at}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": answer},
    ]


@pytest.mark.parametrize("shape", [_anthropic, _openai])
def test_either_shape_of_messages_counts_alike(shape: Callable[[int, Answer], list[object]]) -> None:
    talk = [message for at, entry in enumerate(KNOWN) for message in shape(at, entry)]
    assert [call.succeeded for call in finished_calls(parse_messages(talk))] == [not entry[3] for entry in KNOWN]


def test_a_status_of_thousands_of_digits_says_nothing() -> None:
    assert not says_failed("run", {}, json.dumps({"exit_code": "9" * 5_000, "output": "fine"}))


def test_a_flag_outweighs_a_friendly_answer() -> None:
    talk = [
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "save", "arguments": {}}]},
        {"role": "tool", "tool_call_id": "c", "content": "saved", "is_error": True},
    ]
    assert not finished_calls(parse_messages(talk))[0].succeeded


def test_what_a_host_puts_around_an_answer_is_taken_off() -> None:
    framed = "Chunk ID: 4f2a\nWall time: 3.2 seconds\nProcess exited with code 101\nOutput:\nerror: no such command"
    assert without_wrapping(framed) == "error: no such command"
    assert without_wrapping('{"output": "boom", "metadata": {"exit_code": 1}}') == "boom"
    assert without_wrapping("Exit code 1") == "Exit code 1"


def test_findings_are_those_of_a_program_that_ran() -> None:
    assert tells_result("=== 2 failed, 3 passed in 0.5s ===")
    assert tells_result("a.ts(3,5): error TS2304: Cannot find name")
    assert not tells_result("bash: pnpm: command not found")
    assert not tells_result("=== 5 passed in 0.5s ===")
