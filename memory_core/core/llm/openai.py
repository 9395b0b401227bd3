"""Models behind the chat completions API, over the ``openai`` SDK: OpenAI, Ollama, vLLM, llama.cpp, gateways.

The only file that imports the SDK, and only when the first request is made. What an endpoint does not know (JSON
schemas, JSON mode, one of the two names of the token limit) is noticed once and remembered for the client's life.
"""

from __future__ import annotations

import re
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
    is_exhausted,
    is_transient,
    persist,
    refuses_temperature,
)
from memory_core.core.llm.structured import strict, system_text

_OWN_URL = "https://api.openai.com/v1"
_WEAKER: Mapping[Structure, Structure] = {"json_schema": "json_object", "json_object": "text"}
_OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_STOPS = {"length": StopReason.LENGTH, "content_filter": StopReason.REFUSAL}
_ABOUT_FORMAT = re.compile(
    r"response_format|json_?\s?schema|json_object|json[ _]mode|schema|grammar|structured.output|json_validate",
    re.IGNORECASE,
)
_ABOUT_LIMIT = re.compile(r"max_(?:completion_)?tokens", re.IGNORECASE)
_UNKNOWN = re.compile(r"(?:un|not )support|unknown|unrecogni|unexpected|extra|not permitted|instead", re.IGNORECASE)


class OpenAIClient:
    """A model of the chat completions API.

    Args:
        model: Name of the model.
        base_url: Address with ``/v1``; empty is ``OPENAI_BASE_URL``, else OpenAI's own. No key is needed with one.
        structure: ``auto`` asks for a JSON schema, then for JSON mode, then in plain text, as the endpoint allows.
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
        self._structure: Structure = "json_schema" if structure == "auto" else structure
        self._limit_name: str | None = None
        self._takes_no_temperature = False
        self._retries = retries
        self._environment = environment
        self._sleep = sleep
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def structure(self) -> Structure:
        """How answers are kept to the schema at present."""
        return self._structure

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once; see ``LLMClient.complete``.

        Raises:
            ModelUnavailable: If no answer came in time, the request was refused, or there is neither key nor address.
        """
        connection = self._connected()
        deadline = Deadline(timeout_seconds)  # loading the SDK, once in a process, comes on top
        try:
            return persist(lambda: self._asked(connection, request, deadline), deadline, self._retries, self._sleep)
        except AttemptFailed as error:
            raise connection.endpoint.unavailable(error.fault, deadline) from None

    def close(self) -> None:
        """Close connections; a later request opens new ones."""
        with self._lock:
            if self._connection is not None:
                self._connection.client.close()
                self._connection = None

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                endpoint = Endpoint.open("openai", self._model, self._base_url, self._environment)
                self._connection = _connect(endpoint)
            return self._connection

    def _asked(self, connection: Connection, request: LLMRequest, deadline: Deadline) -> Completion:
        """One attempt, asked again at once in another form where the endpoint does not know the first."""
        own = connection.endpoint.is_own
        tried: set[tuple[str, str, bool]] = set()
        while True:
            structure: Structure = self._structure if request.schema else "text"
            limit = self._limit_name or ("max_completion_tokens" if own else "max_tokens")
            tried.add((structure, limit, self._takes_no_temperature))
            try:
                answer = self._sent(connection, request, structure, limit, own, deadline.left())
            except AttemptFailed as error:
                if not self._adapt(error.fault, structure, limit):
                    raise
                known = self._structure if request.schema else structure
                if (known, self._limit_name or limit, self._takes_no_temperature) in tried:
                    raise
            else:
                return answer

    def _adapt(self, fault: Fault, structure: Structure, limit: str) -> bool:
        """Whether the endpoint's words name something to leave out; it is remembered."""
        if fault.status in (400, 422) and _ABOUT_LIMIT.search(fault.text) and _UNKNOWN.search(fault.text):
            self._limit_name = _OTHER_LIMIT[limit]
            return True
        if refuses_temperature(fault):
            self._takes_no_temperature = True
            return True
        about_format = fault.status in (400, 404, 422, 500, 501) and _ABOUT_FORMAT.search(fault.text)
        if self._adapts and about_format and structure in _WEAKER:
            self._structure = _WEAKER[structure]
            return True
        return False

    def _sent(
        self, connection: Connection, request: LLMRequest, structure: Structure, limit: str, own: bool, left: float
    ) -> Completion:
        sdk = connection.sdk
        system = system_text(request, structure, shown=not own)
        temperature = None if self._takes_no_temperature else request.temperature
        try:
            answer = connection.client.chat.completions.create(
                model=self._model,
                messages=[{"role": "system", "content": system}]
                + [{"role": turn.role, "content": turn.text} for turn in request.turns],
                response_format=_response_format(request, structure) or sdk.omit,
                temperature=sdk.omit if temperature is None else temperature,
                timeout=sdk.Timeout(left, connect=min(left, CONNECT_SECONDS)),
                **{limit: request.max_tokens},
            )
        except (sdk.OpenAIError, ValueError) as error:
            raise failed(error, sdk) from None
        return _completion(answer)


def _connect(endpoint: Endpoint) -> Connection:
    try:
        import openai

        from memory_core.core.llm.endpoint import http_options
    except ImportError as error:
        raise ModelUnavailable(
            f"the package 'openai' cannot be imported: {error}.", hint="Install it: pip install 'runebook[openai]'."
        ) from None
    client = openai.OpenAI(
        api_key=endpoint.key,
        base_url=endpoint.base_url or _OWN_URL,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(**http_options(loopback=endpoint.is_loopback)),
    )
    return Connection(openai, client, endpoint)


def _response_format(request: LLMRequest, structure: Structure) -> dict[str, Any] | None:
    if structure == "json_schema":
        schema = {"name": request.schema_name, "schema": strict(request.schema, "openai"), "strict": True}
        return {"type": "json_schema", "json_schema": schema}
    return {"type": "json_object"} if structure == "json_object" else None


def _completion(answer: Any) -> Completion:
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise AttemptFailed(_fault_in_body(answer))
    message = choices[0].message
    stop = _STOPS.get(choices[0].finish_reason or "", StopReason.COMPLETE)
    text = _text(message)
    refusal = getattr(message, "refusal", None)
    if refusal:
        stop, text = StopReason.REFUSAL, text or str(refusal)
    usage = answer.usage
    details = getattr(usage, "prompt_tokens_details", None)
    tokens = TokenUsage(
        getattr(usage, "prompt_tokens", None) or 0,
        getattr(usage, "completion_tokens", None) or 0,
        getattr(details, "cached_tokens", None) or 0,
        1,
    )
    return Completion(text, stop, tokens, str(answer.model or ""))


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
