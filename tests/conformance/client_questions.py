"""Fixtures that ask the client something: sampling, elicitation and roots, in both protocol eras.

Up to 2025-11-25 the question is a request of the server's own; since 2026-07-28 it is a result that says which input
is required, and the client calls again with the answers.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

AnyContext = Context[Any, Any]

_ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)],
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
    },
}
_DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def add_questions(server: MCPServer[Any]) -> None:
    """Add every tool and prompt that asks."""
    _add_requests(server)
    _add_single_questions(server)
    _add_state(server)
    _add_capability_tools(server)


def _form(message: str, properties: dict[str, Any], required: list[str]) -> ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": required}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(text: str, max_tokens: int = 100) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def _form_answer(ctx: AnyContext, key: str, field: str) -> str | None:
    """What the client's user put into ``field``, or None if that is not answered."""
    answer = (ctx.input_responses or {}).get(key)
    content = answer.content if isinstance(answer, ElicitResult) and answer.action == "accept" else None
    return None if not content or field not in content else str(content[field])


def _text(answer: object) -> str:
    return answer.content.text if isinstance(answer, CreateMessageResult) and hasattr(answer.content, "text") else ""


def _roots(ctx: AnyContext, key: str) -> list[str]:
    answer = (ctx.input_responses or {}).get(key)
    return [str(root.uri) for root in answer.roots] if isinstance(answer, ListRootsResult) else []


def _add_requests(server: MCPServer[Any]) -> None:
    """Requests to the client while the tool runs."""

    async def elicit(ctx: AnyContext, message: str, properties: dict[str, Any], required: list[str]) -> str:
        answer = await ctx.session.send_request(
            _form(message, properties, required),
            ElicitResult,
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
        return f"action={answer.action}, content={json.dumps(answer.content or {})}"

    @server.tool(description="Asks the client's model.")
    async def test_sampling(prompt: str, ctx: AnyContext) -> str:
        answer = await ctx.session.send_request(
            _sample(prompt), CreateMessageResult, metadata=ServerMessageMetadata(related_request_id=ctx.request_id)
        )
        return f"LLM response: {_text(answer)}"

    @server.tool(description="Asks the client's user.")
    async def test_elicitation(message: str, ctx: AnyContext) -> str:
        fields = {"username": {"type": "string"}, "email": {"type": "string"}}
        return f"User response: {await elicit(ctx, message, fields, list(fields))}"

    @server.tool(description="Asks the client's user, with defaults.")
    async def test_elicitation_sep1034_defaults(ctx: AnyContext) -> str:
        return f"Elicitation completed: {await elicit(ctx, 'Please check your data', _DEFAULTS, [])}"

    @server.tool(description="Asks the client's user to choose.")
    async def test_elicitation_sep1330_enums(ctx: AnyContext) -> str:
        return f"Elicitation completed: {await elicit(ctx, 'Please choose', _ENUMS, [])}"


def _add_single_questions(server: MCPServer[Any]) -> None:
    """One question, one answer, nothing remembered in between."""

    @server.tool(description="Asks for a name.", structured_output=False)
    def test_input_required_result_elicitation(ctx: AnyContext) -> str | InputRequiredResult:
        name = _form_answer(ctx, "user_name", "name")
        if name is not None:
            return f"Hello, {name}!"
        return InputRequiredResult(
            input_requests={"user_name": _form("What is your name?", {"name": {"type": "string"}}, ["name"])}
        )

    @server.tool(description="Asks the client's model for a capital.", structured_output=False)
    def test_input_required_result_sampling(ctx: AnyContext) -> str | InputRequiredResult:
        answer = _text((ctx.input_responses or {}).get("capital_question"))
        if answer:
            return answer
        return InputRequiredResult(input_requests={"capital_question": _sample("What is the capital of France?")})

    @server.tool(description="Asks for the client's roots.", structured_output=False)
    def test_input_required_result_list_roots(ctx: AnyContext) -> str | InputRequiredResult:
        roots = _roots(ctx, "client_roots")
        return ", ".join(roots) or InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})

    @server.tool(description="Asks for a name while it streams.", structured_output=False)
    def test_streaming_elicitation(ctx: AnyContext) -> str | InputRequiredResult:
        return test_input_required_result_elicitation(ctx)

    @server.prompt(description="Asks for its context.")
    def test_input_required_result_prompt(ctx: AnyContext) -> str | InputRequiredResult:
        context = _form_answer(ctx, "user_context", "context")
        if context is not None:
            return f"Context: {context}"
        question = _form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])
        return InputRequiredResult(input_requests={"user_context": question})


def _add_state(server: MCPServer[Any]) -> None:
    """Questions whose state the client carries, sealed."""
    confirm = _form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])

    @server.tool(description="Carries its state with the client.", structured_output=False)
    def test_input_required_result_request_state(ctx: AnyContext) -> str | InputRequiredResult:
        if ctx.request_state == "confirming" and _form_answer(ctx, "confirm", "ok") is not None:
            return "state-ok"
        return InputRequiredResult(input_requests={"confirm": confirm}, request_state="confirming")

    @server.tool(description="Trusts its state only if it is whole.", structured_output=False)
    def test_input_required_result_tampered_state(ctx: AnyContext) -> str | InputRequiredResult:
        return test_input_required_result_request_state(ctx)

    @server.tool(description="Asks three things at once.", structured_output=False)
    def test_input_required_result_multiple_inputs(ctx: AnyContext) -> str | InputRequiredResult:
        name, greeting = _form_answer(ctx, "user_name", "name"), _text((ctx.input_responses or {}).get("greeting"))
        roots = _roots(ctx, "client_roots")
        if name is not None and greeting and roots:
            return f"{greeting}, {name} of {roots[0]}"
        asked: dict[str, InputRequest] = {
            "user_name": _form("What is your name?", {"name": {"type": "string"}}, ["name"]),
            "greeting": _sample("Generate a greeting", 50),
            "client_roots": ListRootsRequest(),
        }
        return InputRequiredResult(input_requests=asked, request_state="greeting")

    @server.tool(description="Asks twice, the second time because of the first answer.", structured_output=False)
    def test_input_required_result_multi_round(ctx: AnyContext) -> str | InputRequiredResult:
        state = json.loads(ctx.request_state) if ctx.request_state else {}
        name, color = _form_answer(ctx, "step1", "name"), _form_answer(ctx, "step2", "color")
        if state.get("name") and color is not None:
            return f"{state['name']} likes {color}"
        if state and name is not None:
            question = _form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
            return InputRequiredResult(
                input_requests={"step2": question}, request_state=json.dumps({"round": 2, "name": name})
            )
        question = _form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
        return InputRequiredResult(input_requests={"step1": question}, request_state=json.dumps({"round": 1}))


def _add_capability_tools(server: MCPServer[Any]) -> None:
    """Asking only for what the client declared."""

    @server.tool(description="Asks for whatever the client can answer.", structured_output=False)
    def test_input_required_result_capabilities(ctx: AnyContext) -> InputRequiredResult:
        capabilities = ctx.client_capabilities
        asked: dict[str, InputRequest] = {}
        if capabilities is not None and capabilities.sampling is not None:
            asked["sample"] = _sample("Say something")
        if capabilities is not None and capabilities.elicitation is not None:
            asked["form"] = _form("Say something", {"words": {"type": "string"}}, ["words"])
        if not asked:
            raise MCPError(INVALID_PARAMS, "The client can answer nothing.")
        return InputRequiredResult(input_requests=asked)

    @server.tool(description="Cannot do without sampling.")
    def test_missing_capability(ctx: AnyContext) -> str:
        capabilities = ctx.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                "This tool needs the sampling capability.",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return "The client can sample."
