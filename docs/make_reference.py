"""The pages of ``docs/reference``, made from the code: tools, command line, memory types, HTTP API; ``types.json``.

``python docs/make_reference.py FOLDER`` writes them; a test compares them with what the repository holds. Nothing here
depends on the terminal or the Python that runs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MADE = "<!-- Made by python docs/make_reference.py docs/reference. Change the code, not this page. -->\n"


def tools_page() -> str:
    """Every MCP tool with its arguments."""
    from server.protocol.session import MemorySession
    from server.protocol.tools import build_tools

    def closed() -> Any:
        raise AssertionError("tools are described without a store")

    lines = [_MADE, "# Tools\n"]
    for tool in build_tools(MemorySession(closed)):
        hints = [] if tool.annotations is None else _hints(tool.annotations.model_dump(exclude_none=True))
        lines += [
            f"## `{tool.name}`\n",
            f"{tool.description}\n",
            f"Annotations: {', '.join(hints)}.\n" if hints else "",
        ]
        required = set(tool.parameters.get("required", ()))
        definitions = tool.parameters.get("$defs", {})
        lines += ["| Argument | Type | |", "|---|---|---|"]
        for name, schema in tool.parameters["properties"].items():
            shown = f"`{name}`" + (" (required)" if name in required else "")
            lines.append(f"| {shown} | {_type(schema, definitions)} | {_cell(_about(schema))} |")
        lines.append("")
    return _page(lines)


def commands_page() -> str:
    """Every command with its arguments and options."""
    from server.cli import command_line

    parser = command_line().parser
    lines = [_MADE, "# Command line\n", f"{parser.description} {parser.epilog}\n"]
    common = {"--help", "--home", "--config", "--set", "--json"}
    lines += [
        "Every command takes `--home DIR` (the memory folder), `--config FILE` (settings), `--set NAME=VALUE` (one "
        "setting), and, where it prints results, `--json`.\n"
    ]
    for path, about, command in _commands(parser, "runebook"):
        lines += [f"## `{path}`\n", f"{about}\n" if about else ""]
        rows = [row for action in command._actions if not common & set(action.option_strings) for row in _row(action)]
        lines += (["| | |", "|---|---|", *rows, ""]) if rows else []
    return _page(lines)


def types_page() -> str:
    """Every built-in memory type with its fields."""
    from memory_core.core.config import Config
    from memory_core.open_store import load_registry

    lines = [_MADE, "# Memory types\n"]
    for known in load_registry(Config(schema_dirs=())).list_all():
        lines += [
            f"## `{known.name}`\n",
            f"`{known.directory}/{known.filename_template}`\n",
            f"{known.description.strip()}\n",
        ]
        lines += ["| Field | Type | Merge | |", "|---|---|---|---|"]
        for field in known.fields:
            lines.append(f"| `{field.name}` | {field.type} | {field.merge_op} | {_cell(field.description)} |")
        lines.append("")
    return _page(lines)


def api_page() -> str:
    """Every path of the HTTP API with its parameters and answers."""
    from server.http.api import description

    document = description()
    lines = [_MADE, "# HTTP API\n", f"{document['info'].get('description', '').strip()}\n"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## `{method.upper()} {path}`\n", f"{_about(operation) or operation.get('summary', '')}\n"]
            rows = [
                f"| `{given['name']}` | {given['in']} | {_type(given.get('schema', {}), {})} | {_cell(_about(given))} |"
                for given in operation.get("parameters", ())
            ]
            rows += list(_body_rows(operation, document))
            lines += (["| | | Type | |", "|---|---|---|---|", *rows, ""]) if rows else []
            answers = [
                f"{status} {_cell(_about(answer)).rstrip('.')}" for status, answer in operation["responses"].items()
            ]
            lines += [f"Answers: {'; '.join(answers)}.\n"]
    return _page(lines)


def types_table() -> str:
    """The built-in memory types as they are read at the start."""
    from memory_core.core.memory.memory_type import builtin_schema_dir, compiled_types

    return compiled_types(builtin_schema_dir())


PAGES = {
    "tools.md": tools_page,
    "commands.md": commands_page,
    "types.md": types_page,
    "api.md": api_page,
    "../../schemas/types.json": types_table,
}


def main() -> None:
    """Write the pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8", newline="\n")


def _page(lines: list[str]) -> str:
    text = "\n".join(lines).rstrip() + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def _hints(annotations: Mapping[str, Any]) -> list[str]:
    return [f"`{name}` {str(value).lower()}" for name, value in annotations.items() if isinstance(value, bool)]


def _about(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description", "")).strip()


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """The type in a few words, for example ``string or null``."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            named = dict.fromkeys(_type(each, definitions) for each in schema[several] if each.get("type") != "null")
            return " or ".join(named)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), definitions)}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _body_rows(operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content["schema"]
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        for name, member in schema.get("properties", {}).items():
            yield f"| `{name}` | body | {_type(member, {})} | {_cell(_about(member))} |"


def _commands(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name in about:
                command = action.choices[name]
                yield f"{path} {name}", command.description or about[name], command
                yield from _commands(command, f"{path} {name}")


def _row(action: argparse.Action) -> Iterator[str]:
    if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
        return
    taken = action.metavar if isinstance(action.metavar, str) else (action.dest.upper() if action.nargs != 0 else "")
    if action.choices is not None:
        taken = "|".join(str(choice) for choice in action.choices)
    name = ", ".join(action.option_strings) or taken
    shown = f"{name} {taken}" if action.option_strings and taken else name
    about = (action.help or "").replace("%(default)s", str(action.default))
    yield f"| `{_cell(shown)}` | {_cell(about)} |"


if __name__ == "__main__":
    main()
