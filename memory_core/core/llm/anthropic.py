"""Claude over the ``anthropic`` SDK: prompt caching, structured output, and one error tree.

The only file that imports the SDK, and only when the first request is made. The static part of a request is marked
for the provider's prompt cache. Only ``ANTHROPIC_API_KEY`` is used as a credential: the SDK's own search (tokens,
profiles on disk, workload identity) is bypassed by naming the key.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from memory_core.core.errors import ModelUnavailable
from memory_core.core.llm.client import Completion, LLMRequest, StopReason, Structure, TokenUsage
from memory_core.core.llm.endpoint import (
    CONNECT_SECONDS,
    AttemptFailed,
    Connection,
    Deadline,
    Endpoint,
    Fault,
    failed,
    persist,
    refuses_temperature,
)
from memory_core.core.llm.structured import strict, system_text

_OWN_URL = "https://api.anthropic.com"
#: Of Claude; the setting goes further, for others.
_HOTTEST = 1.0
_STOPS = {
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
}
_ABOUT_SCHEMA = ("output_config", "output_format", "json_schema", "schema", "grammar", "structured output")


class AnthropicClient:
    """A model of the Messages API, Anthropic's own or a compatible one.

    Args:
        model: Name of the model.
        base_url: Address without ``/v1``; empty is ``ANTHROPIC_BASE_URL``, else the provider's own.
        structure: ``auto`` asks for the schema, and for JSON in plain text once the endpoint refused that.
        retries: Attempts after a fault that passes by.
        environment: Variables; None means ``os.environ``, read at the first request.
        sleep: Waits so many seconds between attempts.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "",
        *,
        structure: Literal["auto"] | Structure = "auto",
        retries: int = 3,
        environment: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._base_url = base_url
        self._adapts = structure == "auto"
        self._structure: Structure = "json_schema" if structure in ("auto", "json_schema") else "text"
        self._retries = retries
        self._environment = environment
        self._sleep = sleep
        self._takes_no_temperature = False
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def structure(self) -> Structure:
        """How answers are kept to the schema at present."""
        return self._structure

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once; see ``LLMClient.complete``.

        Raises:
            ModelUnavailable: If no answer came in time, the request was refused, or there is no key.
        """
        connection = self._connected()
        deadline = Deadline(timeout_seconds)  # loading the SDK, once in a process, comes on top
        try:
            message = persist(lambda: self._asked(connection, request, deadline), deadline, self._retries, self._sleep)
        except AttemptFailed as error:
            raise connection.endpoint.unavailable(error.fault, deadline) from None
        return _completion(message)

    def close(self) -> None:
        """Close connections; a later request opens new ones."""
        with self._lock:
            if self._connection is not None:
                self._connection.client.close()
                self._connection = None

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                endpoint = Endpoint.open("anthropic", self._model, self._base_url, self._environment)
                self._connection = _connect(endpoint)
            return self._connection

    def _asked(self, connection: Connection, request: LLMRequest, deadline: Deadline) -> Any:
        structure: Structure = self._structure if request.schema else "text"
        sdk = connection.sdk
        schema = {"format": {"type": "json_schema", "schema": strict(request.schema, "anthropic")}}
        temperature = None if self._takes_no_temperature else request.temperature
        text = system_text(request, structure, shown=not connection.endpoint.is_own)
        system = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        left = deadline.left()
        try:
            message = connection.client.messages.create(
                model=self._model,
                max_tokens=request.max_tokens,
                system=[system],
                messages=[{"role": turn.role, "content": turn.text} for turn in request.turns],
                output_config=schema if structure == "json_schema" else sdk.omit,
                # The SDK has no name for it any more; models that take it, and compatible servers, still do.
                extra_body=None if temperature is None else {"temperature": min(temperature, _HOTTEST)},
                # Naming a time also keeps the SDK from refusing a large max_tokens without streaming.
                timeout=sdk.Timeout(left, connect=min(left, CONNECT_SECONDS)),
            )
        except (sdk.AnthropicError, ValueError) as error:
            attempt = failed(error, sdk)
            if self._adapts and structure == "json_schema" and _is_about_schema(attempt.fault):
                self._structure = "text"
                return self._asked(connection, request, deadline)
            if temperature is not None and refuses_temperature(attempt.fault):
                self._takes_no_temperature = True
                return self._asked(connection, request, deadline)
            raise attempt from None
        if not isinstance(message, sdk.types.Message) or not isinstance(message.content, list):
            raise AttemptFailed(Fault(200, "the body is not a message", transient=False))
        return message


def _connect(endpoint: Endpoint) -> Connection:
    try:
        import anthropic

        from memory_core.core.llm.endpoint import http_options
    except ImportError as error:
        raise ModelUnavailable(
            f"the package 'anthropic' cannot be imported: {error}.",
            hint="Install it: pip install 'anthropic>=2.11,<3'.",
        ) from None
    client = anthropic.Anthropic(
        api_key=endpoint.key,
        base_url=endpoint.base_url or _OWN_URL,
        max_retries=0,
        open_telemetry=False,  # traces may hold the conversation
        http_client=anthropic.DefaultHttpxClient(**http_options(loopback=endpoint.is_loopback)),
    )
    return Connection(anthropic, client, endpoint)


def _is_about_schema(fault: Fault) -> bool:
    text = fault.text.casefold()
    return fault.status in (400, 404, 422, 501) and any(words in text for words in _ABOUT_SCHEMA)


def _completion(message: Any) -> Completion:
    text = "".join(block.text for block in message.content if block.type == "text")
    if not text:
        calls = [block.input for block in message.content if block.type == "tool_use"]
        text = json.dumps(calls[0], ensure_ascii=False) if calls else ""
    usage = message.usage  # compatible servers may leave out any of it
    cached = getattr(usage, "cache_read_input_tokens", None) or 0
    written = getattr(usage, "cache_creation_input_tokens", None) or 0
    prompt = (getattr(usage, "input_tokens", None) or 0) + cached + written
    return Completion(
        text,
        _STOPS.get(message.stop_reason or "", StopReason.COMPLETE),
        TokenUsage(prompt, getattr(usage, "output_tokens", None) or 0, cached, 1),
        str(message.model or ""),
    )
