"""Models behind the chat completions API, over the ``openai`` SDK: OpenAI, Ollama, vLLM, llama.cpp, gateways."""

from __future__ import annotations

from typing import Any

import openai

from memory_core.core.llm.client import Completion, LLMRequest, StopReason, TokenUsage
from memory_core.core.llm.endpoint import AttemptFailed, Endpoint, Fault, Form, Provider, is_exhausted, is_transient
from memory_core.core.llm.structured import strict, system_text

#: Names of the token limit: OpenAI's own, and what most other servers know.
_LIMITS = ("max_completion_tokens", "max_tokens")
_STOPS = {"length": StopReason.LENGTH, "content_filter": StopReason.REFUSAL}


def _ask(client: Any, endpoint: Endpoint, request: LLMRequest, form: Form, timeout: Any) -> Completion:
    text = system_text(request, form.structure, shown=not endpoint.is_own)
    response_format: Any = openai.omit
    if form.structure == "json_schema":
        schema = {"name": request.schema_name, "schema": strict(request.schema, "openai"), "strict": True}
        response_format = {"type": "json_schema", "json_schema": schema}
    elif form.structure == "json_object":
        response_format = {"type": "json_object"}
    limit = _LIMITS[endpoint.is_own == form.other_limit]
    answer = client.chat.completions.create(
        model=endpoint.model,
        messages=[{"role": "system", "content": text}]
        + [{"role": turn.role, "content": turn.text} for turn in request.turns],
        response_format=response_format,
        temperature=openai.omit if form.temperature is None else form.temperature,
        timeout=timeout,
        **{limit: request.max_tokens},
    )
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise AttemptFailed(_fault_in_body(answer))
    return _completion(answer, choices[0])


def _completion(answer: Any, choice: Any) -> Completion:
    text, stop = _text(choice.message), _STOPS.get(choice.finish_reason or "", StopReason.COMPLETE)
    refusal = getattr(choice.message, "refusal", None)
    if refusal:
        text, stop = text or str(refusal), StopReason.REFUSAL
    details = getattr(answer.usage, "prompt_tokens_details", None)
    usage = TokenUsage(
        getattr(answer.usage, "prompt_tokens", None) or 0,
        getattr(answer.usage, "completion_tokens", None) or 0,
        getattr(details, "cached_tokens", None) or 0,
        1,
    )
    return Completion(text, stop, usage, str(answer.model or ""))


def _text(message: Any) -> str:
    """The answer's text; where a server turned it into a tool call, the arguments."""
    content = getattr(message, "content", None)
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content:
        return str(content)
    calls = [getattr(call, "function", None) for call in getattr(message, "tool_calls", None) or ()]
    calls.append(getattr(message, "function_call", None))
    return next((str(call.arguments) for call in calls if call is not None and call.arguments), "")


def _fault_in_body(answer: Any) -> Fault:
    """Gateways report faults of the model behind them with status 200 and an ``error`` in the body."""
    error = (getattr(answer, "model_extra", None) or {}).get("error")
    if not isinstance(error, dict):
        return Fault(200, "the body is not a chat completion", transient=False)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 400
    text = f"{error.get('message', '')} {error.get('type', '')} {code}"
    return Fault(status, text, transient=is_transient(status, {}) and not is_exhausted(text))


PROVIDER = Provider(
    name="openai",
    own_url="https://api.openai.com/v1",
    own_hosts=(".openai.com", ".openai.azure.com"),
    sdk=openai,
    error=openai.OpenAIError,
    client=openai.OpenAI,
    structures=("json_schema", "json_object", "text"),
    ask=_ask,
    limit_names=len(_LIMITS),
)
