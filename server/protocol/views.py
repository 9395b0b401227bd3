"""MCP Apps (SEP-1865): ``find`` and ``read`` as views that a host shows beside the conversation.

Owns the resources ``ui://runebook/search`` and ``ui://runebook/memory``, and who is told of them: a client that
declares the extension sees them in ``resources/list`` and in the tools' ``_meta``; to every other client all lists are
what they would be without this module, byte for byte.

A view is one document, made of the files beside this module: a policy that lets nothing in or out, a style and a
script. The host puts it into a sandbox and hands it the tool's result; what else it shows it asks for with the tools
that the model has. Nothing about a user's memories is in it.

Does not: change what a tool returns.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.resources import FunctionResource

from memory_core.version import program_version

#: As ``mcp.server.apps`` has them, which is not imported before a client asks for a list.
EXTENSION_ID = "io.modelcontextprotocol/ui"
APP_MIME_TYPE = "text/html;profile=mcp-app"
_SCHEME = "ui://"
#: ``initialize`` is none of them: the answers of that era have no place for extensions, and hosts do without.
_LISTS = frozenset({"server/discover", "tools/list", "resources/list"})
#: A border is asked for because the view draws none; no domain is named, so none is reached.
_RESOURCE_META = {"ui": {"csp": {"connectDomains": [], "resourceDomains": []}, "prefersBorder": True}}


@dataclass(frozen=True, slots=True)
class AppView:
    """One view.

    Attributes:
        name: Of its script, and the last part of its address.
        tool: Whose results it shows.
    """

    name: str
    tool: str
    title: str
    description: str

    @property
    def uri(self) -> str:
        """Its address."""
        return f"{_SCHEME}runebook/{self.name}"


VIEWS = (
    AppView("search", "find", "Search", "What a search found, with what each score is made of."),
    AppView("memory", "read", "Memory", "A memory as its owner reads it."),
)


@cache
def document(name: str) -> str:
    """The whole HTML of the view of this name; the same for every client."""
    folder = files("server") / "page" / "views"

    def text(file: str) -> str:
        return (folder / file).read_text(encoding="utf-8")

    facts = {"name": name, "version": program_version(), "texts": json.loads(text("texts.json"))}
    given = json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c")
    parts = [text(file) for file in ("host.js", "elements.js", "markdown.js", "reading.js", f"{name}.js")]
    script = "\n".join([f'"use strict";\n{{\nconst VIEW = {given};', *parts, "}"])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = next(view.title for view in VIEWS if view.name == name)
    return text("view.html").format(digest=digest, title=f"Runebook: {title}", style=text("view.css"), script=script)


def add_views(server: MCPServer[Any]) -> None:
    """Serve the views; no file is read before a host asks for one."""
    for view in VIEWS:
        server.add_resource(
            FunctionResource(
                uri=view.uri,
                name=f"{view.name}_view",
                title=view.title,
                description=view.description,
                mime_type=APP_MIME_TYPE,
                meta=_RESOURCE_META,
                fn=partial(document, view.name),
            )
        )


async def views_where_shown(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Server middleware that names the views to clients which show views, and to no others."""
    answer = await call_next(ctx)
    if ctx.method not in _LISTS or not isinstance(answer, dict):  # the SDK gives middleware what goes out: a dict
        return answer
    from mcp.server.apps import client_supports_apps

    shows = client_supports_apps(ctx)
    if not shows and ctx.method != "resources/list":
        return answer
    told: dict[str, Any] = dict(answer)
    if not shows:
        told["resources"] = [entry for entry in told["resources"] if not entry["uri"].startswith(_SCHEME)]
    elif ctx.method == "tools/list":
        told["tools"] = [_linked(tool) for tool in told["tools"]]
    elif ctx.method != "resources/list":
        capabilities = told.get("capabilities", {})
        extensions = {**capabilities.get("extensions", {}), EXTENSION_ID: {}}
        told["capabilities"] = {**capabilities, "extensions": extensions}
    return told


def _linked(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool with its view, in the form of the standard and in the flat one of hosts from before it."""
    uri = next((view.uri for view in VIEWS if view.tool == tool["name"]), None)
    if uri is None:
        return tool
    return {**tool, "_meta": {**tool.get("_meta", {}), "ui": {"resourceUri": uri}, "ui/resourceUri": uri}}
