"""The product's HTTP server with the fixtures added that the conformance suite wants.

Run as ``python -m tests.conformance.everything_server PORT HOME [STORE_URL]``. Server, middleware and app are the
product's own (``build_server``, ``serve``); only what the suite calls by name is added: tools, resources, prompts,
completion, subscriptions and the log level. What the fixtures must answer is the suite's wording, so is its spelling.

Does not: stand in for the product where the suite needs no fixture; ``run`` tests the real command there.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.server.subscriptions import ListenHandler
from mcp.types import (
    AudioContent,
    Completion,
    CompletionArgument,
    CompletionContext,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    PromptReference,
    ResourceTemplateReference,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import Field

from memory_core.core.config import Config, load
from memory_core.runebook import Runebook, open_memory
from server.commands.access_tokens import open_tokens
from server.http.http_server import serve
from server.protocol.app import build_server
from server.protocol.session import MemorySession
from tests.conformance.client_questions import add_questions

AnyServer = MCPServer[MemorySession]
AnyContext = Context[Any, Any]

_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
_WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
_PAUSE_SECONDS = 0.05  # the suite asks for it: messages of one call must not arrive as one
_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def add_content_tools(server: AnyServer) -> None:
    """Tools that answer with each kind of content."""

    def embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
        return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))

    image = ImageContent(type="image", data=_PNG, mime_type="image/png")

    @server.tool(description="Answers with text.")
    def test_simple_text() -> str:
        return "This is a simple text response for testing."

    @server.tool(description="Answers with an image.", structured_output=False)
    def test_image_content() -> list[ImageContent]:
        return [image]

    @server.tool(description="Answers with sound.", structured_output=False)
    def test_audio_content() -> list[AudioContent]:
        return [AudioContent(type="audio", data=_WAV, mime_type="audio/wav")]

    @server.tool(description="Answers with a resource.", structured_output=False)
    def test_embedded_resource() -> list[EmbeddedResource]:
        return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @server.tool(description="Answers with text, an image and a resource.", structured_output=False)
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        data = json.dumps({"test": "data", "value": 123})
        mixed = embedded("test://mixed-content-resource", "application/json", data)
        return [TextContent(type="text", text="Multiple content types test:"), image, mixed]

    @server.tool(description="Always fails.")
    def test_error_handling() -> str:
        raise RuntimeError("This tool intentionally returns an error for testing")


def add_schema_tools(server: AnyServer) -> None:
    """Tools whose argument schemas the suite inspects."""

    @server.tool(description="Takes an argument that HTTP clients repeat in a header.")
    def test_headers(region: str = Field(json_schema_extra={"x-mcp-header": "Region"})) -> str:
        return f"Region {region}"

    def json_schema_2020_12_tool() -> str:
        return "JSON Schema 2020-12"

    tool = Tool.from_function(json_schema_2020_12_tool, description="Tool with JSON Schema 2020-12 features")
    tool.parameters = _SCHEMA
    server._tool_manager._tools[tool.name] = tool  # add_tool would derive the schema again


def add_reporting_tools(server: AnyServer) -> None:
    """Tools that tell the client something while they run, or that the lists have changed."""

    @server.tool(description="Logs three messages.")
    async def test_tool_with_logging(ctx: AnyContext) -> str:
        for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", message, related_request_id=ctx.request_id)
            await anyio.sleep(_PAUSE_SECONDS)
        return "Tool with logging executed successfully"

    @server.tool(description="Logs one message, if the request asks for messages.")
    async def test_logging_tool(ctx: AnyContext) -> str:
        await ctx.session.send_log_message("info", "logged", related_request_id=ctx.request_id)
        return "logged"

    @server.tool(description="Reports progress.")
    async def test_tool_with_progress(ctx: AnyContext) -> str:
        for step in (0, 50, 100):
            await ctx.report_progress(step, 100, f"Completed step {step} of 100")
            await anyio.sleep(_PAUSE_SECONDS)
        return "Tool with progress executed successfully"

    @server.tool(description="Ends its event stream in mid-call; the client reconnects.")
    async def test_reconnection(ctx: AnyContext) -> str:
        await ctx.close_sse_stream()
        await anyio.sleep(_PAUSE_SECONDS)
        return "Reconnection test completed"

    def appearing() -> str:
        return "I came later."

    @server.tool(description="Adds a tool to the list, or takes it off again.")
    async def test_trigger_tool_change(ctx: AnyContext) -> str:
        if "appearing" in server._tool_manager._tools:
            server.remove_tool("appearing")
        else:
            server.add_tool(appearing, description="Comes and goes.")
        await ctx.notify_tools_changed()
        return "changed"

    @server.tool(description="Adds a prompt to the list, or takes it off again.")
    async def test_trigger_prompt_change(ctx: AnyContext) -> str:
        if "appearing" in server._prompt_manager._prompts:
            server.remove_prompt("appearing")
        else:
            server.add_prompt(Prompt.from_function(appearing, description="Comes and goes."))
        await ctx.notify_prompts_changed()
        return "changed"


def add_resources(server: AnyServer) -> None:
    """Resources, a template, subscriptions."""

    @server.resource("test://static-text", description="A text.", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", description="An image.", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(_PNG)

    @server.resource("test://watched-resource", description="Can be subscribed to.", mime_type="text/plain")
    def watched() -> str:
        return "Watched resource content"

    @server.resource("test://template/{id}/data", description="A template.", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    watchers: set[str] = set()

    async def subscribe(_: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        watchers.add(str(params.uri))
        return EmptyResult()

    async def unsubscribe(_: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams) -> EmptyResult:
        watchers.discard(str(params.uri))
        return EmptyResult()

    async def set_level(_: ServerRequestContext[Any, Any], __: SetLevelRequestParams) -> EmptyResult:
        return EmptyResult()

    lowlevel = server._lowlevel_server
    lowlevel.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    lowlevel.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
    listening = ListenHandler(server._subscriptions)  # what the fixtures' notices go to
    lowlevel.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listening)
    lowlevel.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)


def add_prompts(server: AnyServer) -> None:
    """Prompts, and the completion of their arguments."""

    @server.prompt(description="No arguments.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="Two arguments.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="Embeds a resource.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 (the suite's name)
        text = "Embedded resource content for testing."
        contents = TextResourceContents(uri=resourceUri, mime_type="text/plain", text=text)
        return [
            UserMessage(content=EmbeddedResource(type="resource", resource=contents)),
            UserMessage(content="Please process the embedded resource above."),
        ]

    @server.prompt(description="Shows an image.")
    def test_prompt_with_image() -> list[UserMessage]:
        return [
            UserMessage(content=ImageContent(type="image", data=_PNG, mime_type="image/png")),
            UserMessage(content="Please analyze the image above."),
        ]

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
    async def complete(
        _ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, _: CompletionContext | None
    ) -> Completion:
        words = [word for word in ("paris", "park", "party", "巴黎") if word.startswith(argument.value)]
        return Completion(values=words, total=len(words), has_more=False)


def everything_server(config: Config) -> AnyServer:
    """The product's server over a store, with every fixture."""

    def opener() -> Runebook:
        return open_memory(config)

    server = build_server(opener)
    for add in (add_content_tools, add_schema_tools, add_reporting_tools, add_resources, add_prompts, add_questions):
        add(server)
    return server


def main(port: int, home: str, store_url: str = "") -> None:
    """Serve until told to stop."""
    flags = {"home": home, "embedding.provider": "none", "http.requests_per_minute": "0", "store.url": store_url}
    config = load(environment={}, flags=flags)
    with open_tokens(config) as tokens:
        serve(everything_server(config), "127.0.0.1", port, tokens, config.http)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
