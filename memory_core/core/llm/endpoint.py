"""A model behind an HTTP API: its address and key, retries until a deadline, faults as errors with the next step.

Owns what all providers share. A provider's module declares a ``Provider`` with what differs; it is the only one that
imports its SDK, and is loaded at the first request. What an endpoint does not know (JSON schemas, JSON mode, one of
the names of the token limit, a temperature) is noticed once and remembered for the client's life. A read time-out
bounds the wait for each piece of an answer, not for the answer: gateways that send blanks while the model thinks would
keep a request alive for ever, so the body is bounded here too.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_exponential, wait_random

from memory_core.core.config import is_loopback
from memory_core.core.errors import ModelUnavailable
from memory_core.core.llm.client import PROVIDERS, Completion, LLMRequest, Structure
from memory_core.core.llm.json_text import quoted

T = TypeVar("T")

#: Sent where an endpoint of one's own needs no key, because the SDKs insist on one.
PLACEHOLDER_KEY = "no-key-needed"
#: A connection that is not made within this time is worth a second try.
_CONNECT_SECONDS = 10.0
_TRANSIENT = frozenset({408, 409, 429})
_BACKOFF = wait_exponential(multiplier=0.5, max=8.0) + wait_random(0.0, 0.5)
_QUEUED = "The conversation waits; it is taken up by the next commit, or by `runebook extract`."
_NO_MONEY = ("insufficient_quota", "credit balance", "insufficient balance")
_TOO_LONG = re.compile(
    r"context.length|context.window|prompt is too long|too many tokens|maximum context", re.IGNORECASE
)
_ABOUT_STRUCTURE = re.compile(
    r"response_format|output_config|output_format|schema|grammar|json_object|json[ _]mode|json_validate"
    r"|structured.output",
    re.IGNORECASE,
)
_ABOUT_LIMIT = re.compile(r"max_(?:completion_)?tokens", re.IGNORECASE)
_UNKNOWN = re.compile(r"(?:un|not )support|unknown|unrecogni|unexpected|extra|not permitted|instead", re.IGNORECASE)
_ENDS_AT = "runebook_ends_at"
_PROXIED = ("all://", "http://", "https://")


# Attempts and their faults -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one attempt.

    Attributes:
        status: HTTP status; None where no answer came.
        text: What the endpoint said, or what happened to the connection.
        transient: Whether asking again may help.
        retry_after_seconds: What the endpoint asked for.
        timed_out: No answer within the time given.
    """

    status: int | None
    text: str
    transient: bool
    retry_after_seconds: float | None = None
    timed_out: bool = False


class AttemptFailed(Exception):
    """One attempt brought no answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class Deadline:
    """A moment by which everything must have happened."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain.

        Raises:
            AttemptFailed: If none do.
        """
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise AttemptFailed(Fault(None, "no time is left", transient=False, timed_out=True))
        return left


def persist(attempt: Callable[[], T], deadline: Deadline, retries: int, sleep: Callable[[float], None]) -> T:
    """The result of the first attempt that succeeds.

    Args:
        attempt: Asks once; raises ``AttemptFailed``. Bounds itself by ``deadline.left()``.
        deadline: A wait that would pass it is not begun.
        retries: Attempts after the first.
        sleep: Waits so many seconds.

    Raises:
        AttemptFailed: The last one.
    """
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, AttemptFailed) and error.fault.transient),
        stop=stop_after_attempt(retries + 1) | stop_before_delay(deadline.left()),
        wait=_wait_seconds,
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)


def _wait_seconds(state: RetryCallState) -> float:
    error = None if state.outcome is None else state.outcome.exception()
    asked = error.fault.retry_after_seconds if isinstance(error, AttemptFailed) else None
    return _BACKOFF(state) if asked is None else asked


def is_transient(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an HTTP status passes by; the endpoint's own word (``x-should-retry``) comes first."""
    said = headers.get("x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    return status in _TRANSIENT or status >= 500


def is_exhausted(text: str) -> bool:
    """Whether a refusal is about money, which no waiting mends."""
    return any(words in text.casefold() for words in _NO_MONEY)


def retry_after_seconds(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The wait that ``retry-after-ms`` or ``retry-after`` (seconds or a date) asks for, >= 0; None if neither does.

    Args:
        headers: Of the answer, case-insensitive.
        now: Seconds since the epoch; default the clock's.
    """
    for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit_seconds
        except ValueError:
            continue
        if seconds >= 0:
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except ValueError:
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def _fault_of(error: Exception, sdk: Any) -> Fault:
    """What an exception of the ``anthropic`` or ``openai`` package says; both have the same tree."""
    if isinstance(error, sdk.APIStatusError):
        text, headers = _said(error.body) or str(error), error.response.headers
        transient = is_transient(error.status_code, headers) and not is_exhausted(text)
        return Fault(error.status_code, text, transient, retry_after_seconds(headers))
    if isinstance(error, sdk.APITimeoutError):
        connecting = type(error.__cause__).__name__ == "ConnectTimeout"
        text = "no connection within the time allowed" if connecting else "timed out"
        return Fault(None, text, transient=True, timed_out=not connecting)
    if isinstance(error, sdk.APIConnectionError):
        cause = error.__cause__
        return Fault(None, str(cause or error) or type(cause).__name__, transient=True)
    if isinstance(error, ValueError | sdk.APIResponseValidationError):
        return Fault(200, "the body is not the JSON that was expected", transient=False)
    return Fault(None, str(error), transient=False)


def _said(body: Any) -> str:
    """What an error body says; its shape differs between SDKs and servers."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return str(inner or "")
    told = [str(inner[name]) for name in ("message", "type", "code") if inner.get(name) not in (None, "")]
    return " · ".join(dict.fromkeys(told)) or str(inner)


# Where a model is asked ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """How a request is put, as far as endpoints differ in what they know.

    Attributes:
        structure: How the model is kept to the schema.
        temperature: Of the answer; None where none is wanted or taken.
        other_limit: Whether the token limit goes by its other name.
    """

    structure: Structure
    temperature: float | None
    other_limit: bool = False


@dataclass(frozen=True, slots=True)
class Provider:
    """What differs between providers.

    Attributes:
        name: As in ``llm.provider``; the key is in ``<NAME>_API_KEY``, another address in ``<NAME>_BASE_URL``.
        own_url: Where the provider itself answers.
        own_hosts: Endings of the hosts that are its own.
        sdk: Its package: ``Timeout``, ``DefaultHttpxClient`` and the tree of errors below ``error``.
        client: The class of the package's client; ``options`` are arguments that only this one takes.
        structures: The forms of structured output that it knows, strongest first, ``text`` last.
        limit_names: Number of names that the token limit has.
        ask: Sends one request in one form with a time-out of the SDK, and reads the answer. Raises ``AttemptFailed``
            for an answer that is none, and whatever the SDK raises.
    """

    name: str
    own_url: str
    own_hosts: tuple[str, ...]
    sdk: Any
    error: type[Exception]
    client: Callable[..., Any]
    structures: tuple[Structure, ...]
    ask: Callable[[Any, Endpoint, LLMRequest, Form, Any], Completion]
    options: Mapping[str, Any] = field(default_factory=dict)
    limit_names: int = 1

    @property
    def key_name(self) -> str:
        """The variable that holds the key."""
        return f"{self.name.upper()}_API_KEY"

    def unknown(self, form: Form, fault: Fault, *, adapts: bool) -> Mapping[str, Any]:
        """What to change of a form whose refusal names something that the endpoint does not know; empty for nothing.

        Args:
            form: The form that was refused.
            fault: The refusal.
            adapts: Whether the structure may be weakened.
        """
        refused = fault.status in (400, 422)
        if refused and self.limit_names > 1 and _ABOUT_LIMIT.search(fault.text) and _UNKNOWN.search(fault.text):
            return {"other_limit": not form.other_limit}
        if refused and form.temperature is not None and "temperature" in fault.text.casefold():
            return {"temperature": None}
        about_structure = fault.status in (400, 404, 422, 500, 501) and _ABOUT_STRUCTURE.search(fault.text)
        if adapts and about_structure and form.structure != "text":
            return {"structure": self.structures[self.structures.index(form.structure) + 1]}
        return {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked.

    Attributes:
        provider: Whose protocol it speaks.
        model: Name of the model.
        base_url: Address; empty is the provider's own.
        key: Never shown.
    """

    provider: Provider
    model: str
    base_url: str
    key: str = field(repr=False)

    @classmethod
    def open(
        cls, provider: Provider, model: str, base_url: str = "", environment: Mapping[str, str] | None = None
    ) -> Endpoint:
        """The endpoint with the key from ``<NAME>_API_KEY``, at ``base_url`` or ``<NAME>_BASE_URL``.

        Raises:
            ModelUnavailable: If the key is missing or malformed, or the address is no URL.
        """
        known = os.environ if environment is None else environment
        key_name, url_name = provider.key_name, f"{provider.name.upper()}_BASE_URL"
        address = base_url or known.get(url_name, "").strip()
        if address and not _is_url(address):
            raise ModelUnavailable(
                "the address of the model is no http or https URL.", hint=f"Correct llm.base_url (or {url_name})."
            )
        key = known.get(key_name, "").strip()
        if not key and not address:
            raise ModelUnavailable(
                f"the environment variable {key_name} is not set.",
                hint=f"Set {key_name} in the environment of the server (in an MCP client: `env` of its entry), "
                "or llm.base_url to a server of your own, or llm.provider to none.",
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ModelUnavailable(
                f"{key_name} holds characters that no key has.", hint=f"Copy the key again into {key_name}."
            )
        return cls(provider, model, address, key or PLACEHOLDER_KEY)

    @property
    def host(self) -> str:
        """The host of the address; empty for the provider's own."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_own(self) -> bool:
        """Whether the provider itself answers, not a server that speaks its protocol."""
        return not self.base_url or self.host.endswith(self.provider.own_hosts)

    @property
    def is_loopback(self) -> bool:
        """Whether the address is this machine, where no proxy helps."""
        return is_loopback(self.host)

    @property
    def where(self) -> str:
        """The address for messages, without user and password."""
        if not self.base_url:
            return f"{self.provider.name}'s API"
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def connect(self) -> Any:
        """A client of the provider's SDK for this endpoint."""
        return self.provider.client(
            api_key=self.key,
            base_url=self.base_url or self.provider.own_url,
            max_retries=0,
            http_client=self.provider.sdk.DefaultHttpxClient(**http_options(loopback=self.is_loopback)),
            **self.provider.options,
        )

    def unavailable(self, fault: Fault, deadline: Deadline, purpose: str) -> ModelUnavailable:
        """The error for a fault that was the last; the key is not in it, nor, but for extractions, that one waits."""
        said = quoted(fault.text if self.key == PLACEHOLDER_KEY else fault.text.replace(self.key, "[key]"))
        if fault.timed_out:
            message = f"{self.model} at {self.where} gave no answer within {deadline.seconds:.3g} s."
        elif fault.status is None:
            message = f"{self.where} could not be reached or broke off: {said}."
        else:
            message = f"{self.where} answered {fault.status}: {said}"
        hint = self._hint(fault)
        return ModelUnavailable(message, hint=hint if purpose == "extraction" else hint.removesuffix(_QUEUED).rstrip())

    def _hint(self, fault: Fault) -> str:
        key_name = self.provider.key_name
        ending = "it usually ends in /v1" if self.provider.own_url.endswith("/v1") else "it does not end in /v1"
        if fault.timed_out:
            return f"Raise llm.deadline_seconds, or choose a faster llm.model. {_QUEUED}"
        if fault.status is None and not self.base_url:
            return f"Check the network and its proxy. {_QUEUED}"
        if fault.status is None:
            return f"Check that the server is running and llm.base_url is right. {_QUEUED}"
        if fault.status == 402 or is_exhausted(fault.text):
            return "Check the balance and limits of the account."
        if fault.status == 413 or (_TOO_LONG.search(fault.text) and fault.status not in (200, 401, 403, 429)):
            return "Lower extraction.prompt_tokens or llm.max_tokens to what the model takes."
        if fault.status >= 500:
            return f"The provider has trouble; wait. {_QUEUED}"
        known = {
            200: f"Check llm.base_url: what answers there is not the API ({ending}).",
            401: f"Check the key in {key_name}.",
            403: f"The key in {key_name} may not use {self.model!r} here; check llm.model and the account.",
            404: f"Check llm.model and llm.base_url ({ending}).",
            429: f"Wait {f'{fault.retry_after_seconds:.0f} s' if fault.retry_after_seconds else 'a little'}. {_QUEUED}",
        }
        other = "Check llm.model, llm.max_tokens and llm.structure (auto adapts to the endpoint)."
        return known.get(fault.status, other)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


# Asking it -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class RemoteModel:
    """A model of a provider, or of a server that speaks its protocol.

    Attributes:
        provider: A name in ``client.PROVIDERS``.
        model: Name of the model.
        base_url: Address; empty is ``<NAME>_BASE_URL``, else the provider's own. With one no key is needed.
        structure: ``auto`` asks for the strongest form of structured output and weakens it as the endpoint refuses.
        retries: Attempts after a fault that passes by.
        environment: Variables; None means ``os.environ``, read at the first request.
        sleep: Waits so many seconds between attempts.
    """

    provider: str
    model: str
    base_url: str = ""
    _: KW_ONLY
    structure: Literal["auto"] | Structure = "auto"
    retries: int = 3
    environment: Mapping[str, str] | None = None
    sleep: Callable[[float], None] = time.sleep
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _learnt: dict[str, Any] = field(default_factory=dict, init=False)
    _opened: tuple[Endpoint, Any] | None = field(default=None, init=False)

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once; see ``LLMClient.complete``.

        Raises:
            ModelUnavailable: If no answer came in time, the request was refused, or there is neither key nor address.
        """
        endpoint, client = self._connected()
        deadline = Deadline(timeout_seconds)  # loading the SDK, once in a process, comes on top
        attempt = functools.partial(self._asked, endpoint, client, request, deadline)
        try:
            return persist(attempt, deadline, self.retries, self.sleep)
        except AttemptFailed as error:
            raise endpoint.unavailable(error.fault, deadline, request.purpose) from None

    def close(self) -> None:
        """Close connections; a later request opens new ones."""
        with self._lock:
            if self._opened is not None:
                self._opened[1].close()
                self._opened = None

    def _connected(self) -> tuple[Endpoint, Any]:
        with self._lock:
            if self._opened is None:
                endpoint = Endpoint.open(load(self.provider), self.model, self.base_url, self.environment)
                self._opened = endpoint, endpoint.connect()
            return self._opened

    def _asked(self, endpoint: Endpoint, client: Any, request: LLMRequest, deadline: Deadline) -> Completion:
        """One attempt, asked again at once in another form where the endpoint does not know the first."""
        provider, sdk = endpoint.provider, endpoint.provider.sdk
        tried: set[Form] = set()
        while True:
            form, left = self._form(provider, request), deadline.left()
            tried.add(form)
            # Naming a time also keeps Anthropic's SDK from refusing a large max_tokens without streaming.
            timeout = sdk.Timeout(left, connect=min(left, _CONNECT_SECONDS))
            try:
                return provider.ask(client, endpoint, request, form, timeout)
            except AttemptFailed as error:
                fault = error.fault
            except (provider.error, ValueError) as error:
                fault = _fault_of(error, sdk)
            change = provider.unknown(form, fault, adapts=self.structure == "auto")
            if not change or replace(form, **change) in tried:
                raise AttemptFailed(fault)
            self._learnt |= change

    def _form(self, provider: Provider, request: LLMRequest) -> Form:
        wanted = provider.structures[0] if self.structure == "auto" else self.structure
        known = wanted if wanted in provider.structures else "text"
        form = replace(Form(known, request.temperature), **self._learnt)
        return form if request.schema else replace(form, structure="text")


def load(name: str) -> Provider:
    """The provider of this name; loads its SDK, once in a process.

    Raises:
        ModelUnavailable: If the SDK is not installed.
    """
    module, install = PROVIDERS[name]
    try:
        provider: Provider = import_module(module).PROVIDER
    except ImportError as error:
        raise ModelUnavailable(
            f"the package '{name}' cannot be imported: {error}.", hint=f"Install it: pip install '{install}'."
        ) from None
    return provider


# Transport -----------------------------------------------------------------------------------------------------------


def http_options(*, loopback: bool) -> dict[str, Any]:
    """Arguments for an HTTP client: bodies end at the deadline of their request, loopback needs no proxy."""
    hooks = {"request": [_note_deadline], "response": [_bound_body]}
    return {"event_hooks": hooks} | ({"mounts": dict.fromkeys(_PROXIED)} if loopback else {})


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, ends_at: float) -> None:
        self._stream = stream
        self._ends_at = ends_at

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if time.monotonic() > self._ends_at:
                raise httpx2.ReadTimeout("the answer was still arriving at the deadline")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _note_deadline(request: httpx2.Request) -> None:
    request.extensions[_ENDS_AT] = time.monotonic() + (request.extensions["timeout"]["read"] or float("inf"))


def _bound_body(response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _BoundedStream(response.stream, response.request.extensions[_ENDS_AT])
