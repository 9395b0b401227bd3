"""What providers' function calling takes: the tools' schemas against each one's rules, and what their models send back.

The rules are those of Gemini's ``Schema`` (a subset of OpenAPI 3.0), of OpenAI's strict mode, and of Anthropic's
``input_schema``, as their references and their error messages state them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from memory_core.core.config import Config
from memory_core.core.memory.metadata import METADATA
from memory_core.core.memory.operations import ReasoningAction
from memory_core.open_store import load_registry
from server.protocol.session import MemorySession
from server.protocol.tools import build_tools
from tests.server.conftest import text_of

if TYPE_CHECKING:
    from tests.server.conftest import Caller, Connect

NOTES = "viking://user/default/memories/notes"
TYPES = {"string", "number", "integer", "boolean", "array", "object"}
#: What a property may be declared with; adapters for Gemini take ``additionalProperties`` out.
GEMINI = {"type", "description", "enum", "items", "properties", "required", "anyOf", "minimum", "maximum", "nullable"}


def closed() -> Any:
    raise AssertionError("tools are described without a store")


TOOLS = {tool.name: tool for tool in build_tools(MemorySession(closed))}
SCHEMAS: dict[str, dict[str, Any]] = {name: tool.parameters for name, tool in TOOLS.items()}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, member in schema.get("properties", {}).items():
        yield from nodes(member, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    for number, branch in enumerate(schema.get("anyOf", ())):
        yield from nodes(branch, f"{path}|{number}")


def strict(schema: dict[str, Any], *, optional: bool = False) -> dict[str, Any]:
    """A schema as adapters make it for OpenAI's strict mode: closed, all members required, optional ones nullable."""
    found = dict(schema)
    if "anyOf" in found:
        found["anyOf"] = [strict(branch) for branch in found["anyOf"]] + ([{"type": "null"}] if optional else [])
        return found
    if found["type"] == "object":
        needed = found.get("required", ())
        members = found.get("properties", {})
        found["properties"] = {name: strict(each, optional=name not in needed) for name, each in members.items()}
        found |= {"required": list(members), "additionalProperties": False}
    if found["type"] == "array":
        found["items"] = strict(found["items"])
    if optional:
        found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"] = [*found["enum"], None]
    return found


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_property_is_declared_in_place_with_one_type(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    for path, node in nodes(schema):
        assert ("type" in node) != ("anyOf" in node), path
        assert node.get("type", "object") in TYPES, path
        assert node.get("type") != "object" or node["properties"], f"{path}: an object without properties"
        assert node.get("type") != "array" or "items" in node, path
        assert not node.keys() - GEMINI - {"additionalProperties"}, path


@pytest.mark.parametrize("name", SCHEMAS)
def test_gemini_takes_the_schema(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}", name)
    for path, node in nodes(SCHEMAS[name]):
        assert "enum" not in node or (node["type"] == "string" and all(isinstance(one, str) for one in node["enum"]))
        assert node.get("type") == "object" or not {"properties", "required"} & node.keys(), path
        assert set(node.get("required", ())) <= set(node.get("properties", {})), path
        assert "anyOf" not in node or len(node) == 1, f"{path}: a union stands alone"


@pytest.mark.parametrize("name", SCHEMAS)
def test_openai_takes_the_schema_and_its_strict_mode_too(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert len(TOOLS[name].description) <= 1_024
    schema = strict(SCHEMAS[name])
    jsonschema.Draft202012Validator.check_schema(schema)
    properties = 0
    for path, node in nodes(schema):
        if "object" in node.get("type", ()):
            assert node["additionalProperties"] is False, path
            assert list(node["properties"]) == node["required"], path
            properties += len(node["properties"])
        assert not {"default", "$ref", "allOf", "oneOf", "not", "patternProperties"} & node.keys(), path
        assert path.count(".") + path.count("[]") <= 10, path
    assert properties <= 5_000


@pytest.mark.parametrize("name", SCHEMAS)
def test_anthropic_takes_the_schema(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    schema = SCHEMAS[name]
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf"} & schema.keys()
    for _, node in nodes(schema):
        assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in node.get("properties", {}))


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_a_title_and_all_hints(name: str) -> None:
    hints = TOOLS[name].annotations
    assert hints is not None
    assert TOOLS[name].title == hints.title
    assert hints.title
    given = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
    assert given == ((False, True, False, False) if name == "commit_memory" else (True, False, True, False))


def test_fields_and_metadata_that_can_be_given_are_declared() -> None:
    operations = SCHEMAS["commit_memory"]["properties"]["operations"]["properties"]
    data = operations["write_operations"]["items"]["properties"]["memory_data"]["properties"]
    edit = operations["edit_operations"]["items"]["properties"]
    for act, members in (("write", data), ("edit", edit), ("commit", SCHEMAS["commit_memory"]["properties"])):
        assert {field.name for field in METADATA if act in field.given_by} <= members.keys()
    assert {"pinned", "expires_at", "active", "confidence", "tags", "links"} <= edit.keys()
    assert "tags" in SCHEMAS["commit_memory"]["properties"]
    types = load_registry(Config(schema_dirs=())).list_all()
    known = {field.name for each in types for field in each.fields}
    assert data["fields"]["properties"].keys() <= known
    keys = {key for each in types for key in each.key_fields}
    for declared in (data["fields"], SCHEMAS["commit_memory"]["properties"]["fields"]):
        assert keys | {"content"} <= declared["properties"].keys()


# What clients fill in


NEEDED: dict[str, dict[str, Any]] = {
    "commit_memory": {"memory_content": "The ferry 渡轮 leaves at nine.", "fields": {"title": "Ferry"}},
    "find": {"query": "ferry"},
    "read": {"uri": f"{NOTES}/Ferry.md"},
    "ls": {"uri": "viking://user/default/memories"},
    "tree": {},
    "retrieve": {"query": "ferry"},
}
EMPTY = {"string": "", "array": [], "object": {}}
DEFAULTS: dict[str, dict[str, Any]] = {
    "commit_memory": {"dry_run": False},
    "find": {"target_uri": "", "limit": 10, "score_threshold": None, "filter": None},
    "read": {"offset": 0, "limit": -1},
    "ls": {"output": "agent", "abs_limit": 256, "show_all_hidden": False, "node_limit": 1000},
    "tree": {"uri": "viking://", "output": "agent", "abs_limit": 256, "node_limit": 1000, "level_limit": 3},
    "retrieve": {"token_budget": 4000, "format": "blocks", "fresh": False},
}


def filled(schema: dict[str, Any], leaf: Callable[[dict[str, Any]], Any]) -> Any:
    """A value in which every member down to the last is given, as constrained models give it."""
    if "anyOf" in schema:
        return filled(schema["anyOf"][0], leaf)
    if schema["type"] == "object":
        return {name: filled(member, leaf) for name, member in schema["properties"].items()}
    if schema["type"] == "array":
        return [filled(schema["items"], leaf)]
    return leaf(schema)


FILLINGS: dict[str, Callable[[str], dict[str, Any]]] = {
    "defaults": lambda name: DEFAULTS[name],
    "null": lambda name: dict.fromkeys(SCHEMAS[name]["properties"]),
    "empty": lambda name: {
        key: EMPTY.get(member["type"]) for key, member in SCHEMAS[name]["properties"].items() if member["type"] in EMPTY
    },
    "null inside": lambda name: filled(SCHEMAS[name], lambda _leaf: None),
    "empty inside": lambda name: filled(SCHEMAS[name], lambda leaf: "" if leaf["type"] == "string" else None),
    "false": lambda name: {
        key: {**EMPTY, "boolean": False}.get(member["type"]) for key, member in SCHEMAS[name]["properties"].items()
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, connect: Connect) -> Iterator[Caller]:
    with connect(tmp_path_factory.mktemp("filled") / "home", "legacy") as caller:
        caller.facts("commit_memory", **NEEDED["commit_memory"], tags=["boats"])
        yield caller


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("name", TOOLS)
def test_arguments_filled_with_nothing_are_as_if_left_out(server: Caller, name: str, filling: str) -> None:
    plain = server.facts(name, **NEEDED[name])
    given = FILLINGS[filling](name)
    answer = server.facts(name, **{**given, **NEEDED[name]})
    for each in (plain, answer):
        each.pop("commit_id", None)
    assert answer == plain


@pytest.mark.parametrize("name", [name for name in TOOLS if SCHEMAS[name].get("required")])
@pytest.mark.parametrize("empty", ["", "  ", None])
def test_what_is_required_and_empty_is_named(server: Caller, name: str, empty: Any) -> None:
    (required,) = SCHEMAS[name]["required"]
    answer = server.call(name, **{required: empty})
    assert answer.is_error
    assert text_of(answer).startswith(f"'{required}' is empty. Next: ")


@pytest.mark.parametrize("filling", ["null", "empty", "null inside", "empty inside"])
def test_a_commit_of_nothing_stores_nothing_and_says_what_to_send(server: Caller, filling: str) -> None:
    before = server.facts("tree", level_limit=16)
    answer = server.call("commit_memory", **FILLINGS[filling]("commit_memory"))
    assert answer.is_error
    assert "memory_content" in str(answer.content)
    assert server.facts("tree", level_limit=16) == before


def test_empty_members_of_an_edit_change_nothing_and_empty_replacements_do(server: Caller) -> None:
    uri = server.facts("commit_memory", memory_content="Tea, black, hot.", fields={"title": "Tea"})["results"][0]["uri"]
    edit = filled(SCHEMAS["commit_memory"]["properties"]["operations"]["properties"]["edit_operations"], lambda _: None)
    cut = {"search": ", hot", "replace": "", "start_line": None}
    edit[0] |= {"uri": uri, "patches": {"content": [cut], "state": ""}}
    server.facts("commit_memory", operations={"edit_operations": edit, "write_operations": None}, memory_content="")
    assert server.facts("read", uri=uri)["content"].startswith("Tea, black.\n")
    pin = {"edit_operations": [{"uri": uri, "pinned": True, "patches": None}]}
    server.facts("commit_memory", operations=pin, private_mode=False)
    assert '"pinned": true' in server.facts("read", uri=uri)["content"]


def test_a_filter_filled_with_nothing_filters_nothing_and_one_member_still_does(server: Caller) -> None:
    empty = filled(SCHEMAS["find"]["properties"]["filter"], lambda _leaf: "")
    assert server.facts("find", query="ferry", filter=empty)["total"] >= 1
    assert server.facts("find", query="ferry", filter={**empty, "tags": "boats"})["total"] == 1
    assert server.facts("find", query="ferry", filter={**empty, "tags": "planes"})["total"] == 0


def test_private_mode_is_not_ended_by_a_filled_in_false(tmp_path: Path, connect: Connect) -> None:
    with connect(tmp_path / "home", "legacy") as caller:
        caller.facts("commit_memory", private_mode=True)
        caller.call("commit_memory", memory_content="Nothing of this 私.", private_mode=False)
        assert caller.facts("find", query="Nothing of this 私")["total"] == 0


def test_the_id_of_a_brief_is_asked_of_a_client_and_not_of_a_model_of_ours() -> None:
    members = SCHEMAS["commit_memory"]["properties"]["operations"]["properties"]
    assert members["brief_id"]["type"] == "string"
    assert "brief_id" not in str(ReasoningAction.model_json_schema())
