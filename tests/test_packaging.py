"""What is published beside the wheel keeps to the formats of those who read it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

TEXT = {"type": "string", "minLength": 1}


def record(required: str, /, **properties: Any) -> dict[str, Any]:
    """An object that has these members alone; the required ones are named first."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": {**dict.fromkeys(required.split(), TEXT), **properties},
    }


def several(item: Any, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "minItems": least, "items": item}


#: MCPB manifest 0.4 as documented, as far as a ``uv`` server uses it. Hosts refuse members that they do not know.
MANIFEST = record(
    "manifest_version name version description author server",
    manifest_version={"const": "0.4"},
    **dict.fromkeys(("display_name", "long_description", "license"), TEXT),
    author=record("name"),
    keywords=several(TEXT),
    prompts_generated={"type": "boolean"},
    server=record("type entry_point", type={"const": "uv"}, mcp_config=record("command", args=several(TEXT, 0))),
    tools=several(record("name", description=TEXT)),
    compatibility=record(
        "", platforms=several({"enum": ["darwin", "win32", "linux"]}), runtimes=record("", python=TEXT)
    ),
    user_config={
        "type": "object",
        "additionalProperties": record(
            "type title description",
            type={"enum": ["string", "number", "boolean", "directory", "file"]},
            default=TEXT,
            required={"type": "boolean"},
        ),
    },
)
#: The registry's server.json of 2025-12-11 as documented, as far as a PyPI package uses it.
REGISTRY = {
    **record(
        "name description version packages",
        name={"type": "string", "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        title={**TEXT, "maxLength": 100},
        description={**TEXT, "maxLength": 100},
        version={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        packages=several(
            record(
                "registryType identifier version transport",
                registryType={"const": "pypi"},
                registryBaseUrl={"const": "https://pypi.org"},
                identifier={"const": "runebook"},
                runtimeHint={"const": "uvx"},
                transport={"const": {"type": "stdio"}},
                packageArguments=several({"type": "object", "required": ["type", "value"]}, 0),
                environmentVariables=several(
                    record(
                        "name description",
                        format={"enum": ["string", "number", "boolean", "filepath"]},
                        isRequired={"type": "boolean"},
                    ),
                    0,
                ),
            )
        ),
    ),
    "additionalProperties": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
}


def template(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((PACKAGING / name).read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that builds what is published."""
    spec = importlib.util.spec_from_file_location("packaging_build", PACKAGING / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_manifest_keeps_to_the_format_and_lists_the_tools_that_the_server_has(build: ModuleType) -> None:
    told = build.manifest(template("manifest.json"), VERSION, asyncio.run(build.tools()))
    jsonschema.validate(told, MANIFEST)
    assert told["version"] == VERSION
    listed = [tool["name"] for tool in told["tools"]]
    assert {"commit_memory", "find", "read", "ls", "tree", "retrieve"} <= set(listed)
    assert all(len(tool["description"]) < 300 for tool in told["tools"])


def test_every_setting_of_the_manifest_is_used_and_every_used_one_is_there() -> None:
    told = template("manifest.json")
    used = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(told["server"]))
    assert sorted(set(used)) == sorted(told["user_config"])


def test_registry_entry_keeps_to_the_format_and_says_the_version_everywhere(build: ModuleType) -> None:
    entry = build.registry_entry(template("server.json"), "9.9.9")
    jsonschema.validate(entry, REGISTRY)
    assert "$schema" in entry
    assert [entry["version"], entry["packages"][0]["version"]] == ["9.9.9", "9.9.9"]


def test_bundle_holds_what_uv_needs_and_is_the_same_each_time(build: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "runebook-9.9.9-py3-none-any.whl"
    wheel.write_bytes("轮子".encode())
    told = build.manifest(template("manifest.json"), "9.9.9", [("find", "Search. More.")])
    for name in ("one", "two"):
        build.write_bundle(tmp_path / name, told, wheel)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as bundle:
        assert bundle.testzip() is None
        assert json.loads(bundle.read("manifest.json")) == told
        project = tomllib.loads(bundle.read("pyproject.toml").decode())
        assert bundle.read(wheel.name) == wheel.read_bytes()
        compile(bundle.read(told["server"]["entry_point"]), "main.py", "exec")
    assert project["project"]["dependencies"] == ["runebook==9.9.9"]
    assert project["tool"]["uv"]["sources"]["runebook"] == {"path": wheel.name}
    with pytest.raises(ValueError, match=r"not version 9\.9\.8"):
        build.write_bundle(tmp_path / "x", {**told, "version": "9.9.8"}, wheel)


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, continued lines joined."""
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(verb, " ".join(rest.split())) for verb, _, rest in (line.partition(" ") for line in lines)]


def test_container_is_built_from_files_that_are_there_and_runs_without_root() -> None:
    found = instructions()
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK", "LABEL"}
    assert {verb for verb, _ in found} <= known | {"ENTRYPOINT", "CMD", "ARG"}
    for verb, rest in found:
        if verb == "COPY" and not rest.startswith("--from="):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    verbs = [verb for verb, _ in found]
    last = dict(found)
    assert verbs.index("USER") < verbs.index("ENTRYPOINT")
    assert last["USER"] == "runebook"
    assert last["VOLUME"] == "/data"
    assert "RUNEBOOK_HOME=/data" in last["ENV"]
    assert json.loads(last["ENTRYPOINT"]) == ["runebook"]
    assert f'"{template("server.json")["name"]}"' in last["LABEL"]


def test_command_of_the_container_is_one_that_the_program_takes() -> None:
    from server.cli import command_line

    words = json.loads(dict(instructions())["CMD"])
    arguments = command_line(words[0]).parse(words)
    assert (arguments.transport, arguments.host, arguments.port) == (
        "http",
        "0.0.0.0",
        int(dict(instructions())["EXPOSE"]),
    )
