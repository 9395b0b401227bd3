"""Whatever comes in, readers answer or refuse with an error of ours, at once: never another exception, never a hang."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_core.core.commit.commits import parse_operations
from memory_core.core.commit.patch import apply_patch
from memory_core.core.errors import RunebookError
from memory_core.core.index.filter import compile_filter
from memory_core.core.llm.json_text import find_answer
from memory_core.core.memory.directory_page import abstract_line, parse_page
from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir
from memory_core.core.memory.message import dump_lines, parse_lines
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.operations import EditOp, MemoryData, MemoryOperations, WriteOp
from memory_core.core.memory.requests import CommitRequest, FindRequest, RetrieveRequest
from memory_core.core.memory.results import as_json
from memory_core.core.memory.template import recover
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.time_expressions import time_spans
from memory_core.features.daily_logs import entries
from memory_core.features.failures import says_failed, without_wrapping
from memory_core.features.mentions import without
from memory_core.features.redaction import Redaction
from memory_core.runebook import Runebook

NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)
PIECES = (
    *(
        "<!-- MEMORY_FIELDS\n",
        "-->",
        "{",
        "}",
        '"memory_type"',
        ":",
        '"facts"',
        "\\u003c",
        "\r\n",
        "\n",
        "\x00",
        "\ud800",
    ),
    *("<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE", ":start_line:3\n", "-------\n", "coffee", "咖啡", "，", "“"),
    *("viking://", "user/default", "/", "..", "%2e", "last", "week", "before", "3", "days ago", "上周三", "前天"),
    *("二〇二六年", "31 February 9999", "- name: ", "fields:\n", "  - ", "!!python/object:os.system", "&a [*a]", "? "),
    *(
        "|",
        "```json\n",
        "[",
        "]",
        ",",
        "null",
        "1e999",
        "NaN",
        '"',
        "'",
        "\\",
        "<think>",
        "</think>",
        "## ",
        "* 12:00 ",
    ),
    *("<!-- ", "password=", "4111 ", "eyJ", "👩‍💻"),
)
YAML = (
    *("name: mine\n", "description: d\n", "directory: viking://user/{user_space}/memories/mine\n", "fields:\n"),
    *("  - {name: a, type: string, description: d}\n", "filename_template: '{a}.md'\n", "&x ", "*x", "\t", "- ", "{}"),
    *("  - name: b\n    type: int64\n    merge_op: sum\n", "content_template: '{a.__class__}'\n", "<<: *x\n", "...\n"),
)
REPEATED = (
    *(
        " ",
        "\t",
        "a",
        "a ",
        "1,",
        ". ",
        "- ",
        "/a",
        "' ",
        "`",
        "<",
        "](",
        "**a",
        "# ",
        "> ",
        "!",
        "= ",
        "a:",
        "a@",
        "@a",
    ),
    *(
        "a_",
        "“中",
        "？",
        "12:",
        "+",
        "&#",
        "%2",
        "sk-",
        "ha",
        "Error: ",
        "<a>",
        "a|b|\n",
        "never ",
        "A and ",
        "下次不要",
    ),
)
TYPES = MemoryTypeRegistry()
TYPES.load_from_dir(builtin_schema_dir())
TOOLS = TYPES.get("tools")
texts = st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
keys = st.sampled_from(
    ["role", "content", "type", "text", "tool_calls", "tool_results", "function", "name", "arguments", "input", "id",
     "tool_use_id", "time", "usage", "status", "is_error", "duration_ms", "extra", "and", "or", "not", "eq", "in", "gt",
     "contains", "tags", "memory_type", "created_at", "salience", "write_operations", "edit_operations", "uri",
     "patches", "delete_operations", "overview_operations", "memory_data", "fields", "links", "search", "replace",
     "start_line"]
)  # fmt: skip
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from(["user", "tool_use", "facts"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=25
)
objects = st.dictionaries(keys, values, max_size=6)

#: The fast suite spends a few seconds here, the slow one a minute; RUNEBOOK_FUZZ_EXAMPLES=20000 an hour.
short = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
long = settings(
    max_examples=int(os.environ.get("RUNEBOOK_FUZZ_EXAMPLES", "1000")), suppress_health_check=list(HealthCheck)
)

READERS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "memory file": (texts, lambda text: join(*split(text)[:2])),
    "patch": (texts, lambda text: apply_patch("one\ntwo\n咖啡\n", text)),
    "URI": (texts, lambda text: MemoryUri.parse(f"viking://{text}")),
    "filter": (objects, compile_filter),
    "conversation": (st.lists(objects | values, max_size=4), lambda raw: parse_lines(dump_lines(parse_messages(raw)))),
    "session log": (texts, parse_lines),
    "answer of a model": (texts, lambda text: find_answer(text, {"write_operations", "reasoning"})),
    "operations": (objects | values, parse_operations),
    "time expression": (texts, lambda text: time_spans(text, NOW)),
    "log of a day": (texts, entries),
    "summary of a directory": (texts, lambda text: (parse_page(text), abstract_line(text))),
    "secrets": (values, lambda value: Redaction().value(value, "v", [])),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("many", [short, pytest.param(long, marks=pytest.mark.slow)], ids=["some", "many"])
def test_any_input_is_read_or_refused(name: str, many: settings) -> None:
    given_values, read = READERS[name]

    @many
    @given(given_values)
    def run(value: Any) -> None:
        with contextlib.suppress(RunebookError):
            read(value)

    run()


@settings(short, max_examples=60)
@given(texts | st.lists(st.sampled_from(YAML), max_size=12).map("".join))
def test_any_yaml_is_a_type_or_a_problem_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    registry = MemoryTypeRegistry()
    registry.load_from_dir(tmp_path)
    assert all(problem.hint for problem in registry.problems)


@settings(short, max_examples=25)
@given(objects, st.lists(objects, max_size=3), texts)
def test_any_commit_and_question_is_answered_or_refused(
    memory: Runebook, operations: dict[str, Any], messages: list[Any], text: str
) -> None:
    for call in (
        lambda: memory.commit(CommitRequest(operations=operations)),
        lambda: memory.commit(CommitRequest(messages=messages, session_id="s")),
        lambda: memory.commit(CommitRequest(text, fields={"topic": text}, memory_type="facts")),
        lambda: memory.commit(CommitRequest(text, category=text, request_id=text[:20] or None)),
        lambda: memory.find(FindRequest(text, filter=operations)),
        lambda: memory.retrieve(RetrieveRequest(text, messages=messages)),
    ):
        with contextlib.suppress(RunebookError):
            json.dumps(as_json(call()))


def _cleaned(edit: EditOp) -> object:
    return Redaction().operations(MemoryOperations(edit_operations=[edit]))


@pytest.mark.slow
@pytest.mark.parametrize("unit", [*PIECES, *YAML, *REPEATED])
def test_nothing_repeated_keeps_a_store_busy(memory: Runebook, unit: str) -> None:
    for begin in ("", "exit code", "<!-- occurrences"):
        text = begin + unit * (30_000 // len(unit)) + "x"
        call = {"id": "1", "name": "Bash", "arguments": {"command": text}}
        result = {"id": "1", "content": text, "is_error": True}
        pattern = MemoryData(memory_type="patterns", fields={"title": "Bash: error", "content": text})
        for commit in (
            CommitRequest(text),
            CommitRequest(messages=[{"role": "user", "content": text}, {"role": "assistant", "content": text}]),
            CommitRequest(operations=MemoryOperations(write_operations=[WriteOp(memory_data=pattern)])),
            CommitRequest(
                messages=[
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": "", "tool_results": [result]},
                ]
            ),
            FindRequest(text[:8_000]),
        ):
            started = time.thread_time()
            with contextlib.suppress(RunebookError):
                memory.find(commit) if isinstance(commit, FindRequest) else memory.commit(commit)
            assert time.thread_time() - started < 10  # measured: 1.4 s at most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "read"),
    [
        ("<!-- MEMORY_FIELDS\n{", split),
        ('<!-- MEMORY_FIELDS\n{"a":1}\n-->\n', split),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", READERS["patch"][1]),
        ("<<<<<<< SEARCH\n", READERS["patch"][1]),
        ('{"a":', READERS["answer of a model"][1]),
        ("<think>", READERS["answer of a model"][1]),
        ("three days ago, 上周三, ", READERS["time expression"][1]),
        ("* 12:00 text\n", entries),
        ("/a", READERS["URI"][1]),
        ("password is ", READERS["secrets"][1]),
        (
            "<<<<<<< SEARCH\n",
            lambda text: _cleaned(EditOp(uri="viking://user/a/memories/b.md", patches={"content": text})),
        ),
        (" ", lambda text: without_wrapping(f"exit code{text}x")),
        (" ", lambda text: says_failed("Bash", {}, f"退出码{text}x")),
        (" ", lambda text: without(f"It is 7.{text}Kept.", ["It is 7."])),
        (" ", lambda text: find_answer(f'{{"reasoning": ""}}{text}x', {"reasoning"})),
        (" \n", lambda text: recover(TOOLS, f"Tool: x{text}z")),
        (f"{'y' * 99} \n", lambda text: recover(TOOLS, f"Tool: x{text}z")),
    ],
    ids=lambda value: str(value)[:12] if isinstance(value, str) else "",
)
def test_twice_the_input_takes_about_twice_the_time(unit: str, read: Callable[[Any], object]) -> None:
    def seconds(count: int) -> float:
        started = time.thread_time()  # a process may have other work left over
        with contextlib.suppress(RunebookError):
            read(unit * count)
        return time.thread_time() - started

    count = 200_000 // len(unit)
    once = min(seconds(count) for _ in range(3))
    assert seconds(4 * count) < 10 * once + 1.0  # quadratic: 16 times
