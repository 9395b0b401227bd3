"""Claude over the ``anthropic`` SDK: the messages API, Anthropic's own or a compatible one.

The static part of a request is marked for the provider's prompt cache. Only ``ANTHROPIC_API_KEY`` is used as a
credential: the SDK's own search (tokens, profiles on disk, workload identity) is bypassed by naming the key.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic

from memory_core.core.llm.client import Completion, LLMRequest, StopReason, TokenUsage
from memory_core.core.llm.endpoint import AttemptFailed, Endpoint, Fault, Form, Provider
from memory_core.core.llm.structured import strict, system_text

#: Of Claude; the setting goes further, for others.
_HOTTEST = 1.0
_STOPS = {
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
}


def _ask(client: Any, endpoint: Endpoint, request: LLMRequest, form: Form, timeout: Any) -> Completion:
    text = system_text(request, form.structure, shown=not endpoint.is_own)
    output: Any = anthropic.omit
    if form.structure == "json_schema":
        output = {"format": {"type": "json_schema", "schema": strict(request.schema, "anthropic")}}
    # The SDK has no name for the temperature any more; models that take it, and compatible servers, still do.
    more = None if form.temperature is None else {"temperature": min(form.temperature, _HOTTEST)}
    message = client.messages.create(
        model=endpoint.model,
        max_tokens=request.max_tokens,
        system=[{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": turn.role, "content": turn.text} for turn in request.turns],
        output_config=output,
        extra_body=more,
        timeout=timeout,
    )
    if not isinstance(message, anthropic.types.Message) or not isinstance(message.content, list):
        raise AttemptFailed(Fault(200, "the body is not a message", transient=False))
    stop = _STOPS.get(message.stop_reason or "", StopReason.COMPLETE)
    return Completion(_text(message), stop, _usage(message), str(message.model or ""))


def _text(message: Any) -> str:
    """The answer's text; where a server turned it into a tool call, the arguments."""
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [block.input for block in message.content if block.type == "tool_use"]
    return text or (json.dumps(calls[0], ensure_ascii=False) if calls else "")


def _usage(message: Any) -> TokenUsage:
    """What it cost; compatible servers may leave out any of it."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    prompt, cached, written, answered = (getattr(message.usage, name, None) or 0 for name in names)
    return TokenUsage(prompt + cached + written, answered, cached, 1)


PROVIDER = Provider(
    name="anthropic",
    own_url="https://api.anthropic.com",
    own_hosts=(".anthropic.com",),
    sdk=anthropic,
    error=anthropic.AnthropicError,
    client=anthropic.Anthropic,
    structures=("json_schema", "text"),
    ask=_ask,
    options={"open_telemetry": False},  # traces may hold the conversation
)
