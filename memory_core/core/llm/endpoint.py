"""What both SDKs' HTTP clients are given: a body that arrives in drops ends at the deadline, loopback needs no proxy.

A read time-out bounds the wait for each piece of an answer, not for the answer: gateways that send blanks while the
model thinks would keep a request alive for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_exponential, wait_random

from memory_core.core.errors import ModelUnavailable
from memory_core.core.llm.json_text import quoted

T = TypeVar("T")

_TRANSIENT = frozenset({408, 409, 429})
_BACKOFF = wait_exponential(multiplier=0.5, max=8.0) + wait_random(0.0, 0.5)


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


#: Sent where an endpoint of one's own needs no key, because the SDKs insist on one.
PLACEHOLDER_KEY = "no-key-needed"
#: A connection that is not made within this time is worth a second try.
CONNECT_SECONDS = 10.0
_QUEUED = "The conversation waits; it is taken up by the next commit, or by `runebook extract`."
_TOO_LONG = (
    "context length",
    "context_length",
    "context window",
    "prompt is too long",
    "too many tokens",
    "maximum context",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked.

    Attributes:
        provider: Name of the provider, as in ``llm.provider``.
        model: Name of the model.
        base_url: Address; empty is the provider's own.
        key: Never shown.
        key_name: Environment variable of the key.
    """

    provider: str
    model: str
    base_url: str
    key: str = field(repr=False)
    key_name: str

    @classmethod
    def open(cls, provider: str, model: str, base_url: str, environment: Mapping[str, str] | None = None) -> Endpoint:
        """The endpoint with the key from ``<PROVIDER>_API_KEY``, at ``base_url`` or ``<PROVIDER>_BASE_URL``.

        Raises:
            ModelUnavailable: If the key is missing or malformed, or the address is no URL.
        """
        known = os.environ if environment is None else environment
        key_name, url_name = f"{provider.upper()}_API_KEY", f"{provider.upper()}_BASE_URL"
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
        return cls(provider, model, address, key or PLACEHOLDER_KEY, key_name)

    @property
    def is_own(self) -> bool:
        """Whether the provider itself answers, not a server that speaks its protocol."""
        host = urlsplit(self.base_url).hostname or ""
        return not self.base_url or host.endswith((f".{self.provider}.com", f".{self.provider}.azure.com"))

    @property
    def is_loopback(self) -> bool:
        """Whether the address is this machine, where no proxy helps."""
        host = urlsplit(self.base_url).hostname or ""
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def where(self) -> str:
        """The address for messages, without user and password."""
        if not self.base_url:
            return f"{self.provider}'s API"
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def scrubbed(self, text: str) -> str:
        """A text of the endpoint's, short, without the key."""
        if self.key != PLACEHOLDER_KEY:
            text = text.replace(self.key, "[key]")
        return quoted(text)

    def unavailable(self, fault: Fault, deadline: Deadline) -> ModelUnavailable:
        """The error for a fault that was the last."""
        said = self.scrubbed(fault.text)
        if fault.timed_out:
            message = f"{self.model} at {self.where} gave no answer within {deadline.seconds:.3g} s."
        elif fault.status is None:
            message = f"{self.where} could not be reached or broke off: {said}."
        else:
            message = f"{self.where} answered {fault.status}: {said}"
        return ModelUnavailable(message, hint=self._hint(fault))

    @property
    def _ending(self) -> str:
        return "it usually ends in /v1" if self.provider == "openai" else "it does not end in /v1"

    def _hint(self, fault: Fault) -> str:
        text = fault.text.casefold()
        if fault.timed_out:
            return f"Raise llm.deadline_seconds, or choose a faster llm.model. {_QUEUED}"
        if fault.status is None:
            return f"Check that the server is running and llm.base_url is right. {_QUEUED}"
        if fault.status == 200:
            return f"Check llm.base_url: what answers there is not the API ({self._ending})."
        if fault.status == 401:
            return f"Check the key in {self.key_name}."
        if fault.status == 402 or is_exhausted(fault.text):
            return "Check the balance and limits of the account."
        if fault.status == 403:
            return f"The key in {self.key_name} may not use {self.model!r} here; check llm.model and the account."
        if any(words in text for words in _TOO_LONG) or fault.status == 413:
            return "Lower extraction.prompt_tokens or llm.max_tokens to what the model takes."
        if fault.status == 404:
            return f"Check llm.model and llm.base_url ({self._ending})."
        if fault.status == 429:
            wait = fault.retry_after_seconds
            return (f"Wait {wait:.0f} s. " if wait else "Wait a little. ") + _QUEUED
        if fault.status >= 500:
            return f"The provider has trouble; wait. {_QUEUED}"
        return "Check llm.model, llm.max_tokens and llm.structure (auto adapts to the endpoint)."


@dataclass(frozen=True, slots=True)
class Connection:
    """An SDK, a client of it, and the endpoint that the client talks to; SDK types stay in the provider's file."""

    sdk: Any
    client: Any
    endpoint: Endpoint


def is_exhausted(text: str) -> bool:
    """Whether a refusal is about money, which no waiting mends."""
    return any(words in text.casefold() for words in ("insufficient_quota", "credit balance", "insufficient balance"))


def refuses_temperature(fault: Fault) -> bool:
    """Whether the endpoint takes no temperature, or not this one, as models that reason at length do."""
    return fault.status in (400, 422) and "temperature" in fault.text.casefold()


def fault_of(error: Exception, sdk: Any) -> Fault:
    """What an exception of the ``anthropic`` or ``openai`` package says; both have the same tree."""
    if isinstance(error, sdk.APIStatusError):
        text = _said(error.body) or str(error)
        headers = error.response.headers
        return Fault(
            error.status_code,
            text,
            transient=is_transient(error.status_code, headers) and not is_exhausted(text),
            retry_after_seconds=retry_after_seconds(headers),
        )
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


def failed(error: Exception, sdk: Any) -> AttemptFailed:
    """The failed attempt that an SDK's exception stands for."""
    return AttemptFailed(fault_of(error, sdk))


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


_ENDS_AT = "runebook_ends_at"
_PROXIED = ("all://", "http://", "https://")


def http_options(*, loopback: bool) -> dict[str, Any]:
    """Arguments for the SDK's ``DefaultHttpxClient``."""
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
