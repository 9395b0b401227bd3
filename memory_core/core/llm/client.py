"""What is asked of a language model and what it answers; the choice of a provider; a model that follows a script.

A provider is a module of this package and a line in ``PROVIDERS``. It is loaded at the first request, with its SDK.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from memory_core.core.errors import ModelFailed, ModelUnavailable
from memory_core.core.frozen import frozen

if TYPE_CHECKING:
    from memory_core.core.config import LLMConfig

T = TypeVar("T")

#: Providers that the server calls, by their name in ``llm.provider``: the module, and what pip installs for it.
PROVIDERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("memory_core.core.llm.anthropic", "anthropic>=2.11,<3"),
    "openai": ("memory_core.core.llm.openai", "openai>=3.52,<4"),
}
#: In ``llm.provider``: a program of this machine is asked.
COMMAND = "command"
#: How a client makes a model keep to a schema, strongest first.
Structure = Literal["json_schema", "json_object", "text"]


@frozen
class Turn:
    """One message of the exchange with the model."""

    role: Literal["user", "assistant"]
    text: str


@frozen
class LLMRequest:
    """One request.

    Attributes:
        system: The static part: rules, memory types. The same for every conversation, so that providers can cache it.
        turns: The dynamic part, ending with a ``user`` turn.
        schema: JSON schema of the answer, as pydantic writes it; empty asks for plain text.
        schema_name: A short name for it: letters, digits, ``_``.
        max_tokens: Most tokens of the answer.
        temperature: Of the answer; None is the endpoint's own. An endpoint that takes none is asked without.
        purpose: What the answer is for, as metrics count it.
    """

    system: str
    turns: tuple[Turn, ...]
    schema: Mapping[str, Any]
    schema_name: str
    max_tokens: int
    temperature: float | None = None
    purpose: str = "extraction"


class StopReason(StrEnum):
    """Why the answer ended."""

    COMPLETE = "complete"
    LENGTH = "length"
    REFUSAL = "refusal"


@frozen
class TokenUsage:
    """Tokens that requests cost, as the provider counted them; 0 where it did not say.

    ``cached`` is the share of ``prompt`` that came from the provider's cache.
    """

    JSON: ClassVar = "prompt:prompt_tokens completion:completion_tokens cached:cached_tokens requests:model_requests"

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    requests: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.requests + other.requests,
        )


@frozen
class Completion:
    """One answer, as text; ``usage.requests`` is 1."""

    text: str
    stop: StopReason = StopReason.COMPLETE
    usage: TokenUsage = field(default_factory=lambda: TokenUsage(requests=1))
    model: str = ""


class LLMClient(Protocol):
    """A language model."""

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once, with the provider's retries inside the time allowed.

        Args:
            request: What to ask.
            timeout_seconds: Time for everything, retries included; > 0.

        Raises:
            ModelUnavailable: If no answer came in time, or the provider refused the request.
        """
        ...


def drive(steps: Generator[LLMRequest, Completion, T], client: LLMClient, deadline_seconds: float) -> T:
    """Answer each request of ``steps`` with ``client`` until it returns.

    A failure of the model is thrown into ``steps``, which decides what becomes of its work.

    Args:
        steps: Yields requests, is sent completions.
        client: Answers them.
        deadline_seconds: Time for all requests together.
    """
    ends_at = time.monotonic() + deadline_seconds
    try:
        request = next(steps)
        while True:
            left = ends_at - time.monotonic()
            try:
                if left <= 0:
                    raise ModelUnavailable(
                        f"the model took longer than {deadline_seconds:g} s.", hint="Raise llm.deadline_seconds."
                    )
                completion = client.complete(request, left)
            except ModelFailed as error:
                request = steps.throw(error)
            else:
                request = steps.send(completion)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        steps.close()


def watched(
    steps: Generator[LLMRequest, Completion, T], note: Callable[[LLMRequest, Completion | None], None]
) -> Generator[LLMRequest, Completion, T]:
    """The same loop; ``note`` is given each request with its answer, or None where the model failed."""
    try:
        request = next(steps)
        while True:
            try:
                completion = yield request
            except ModelFailed as error:
                note(request, None)
                request = steps.throw(error)
            else:
                note(request, completion)
                request = steps.send(completion)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        steps.close()


#: An answer, an error to raise, or what decides between them when the request is known.
Answer = str | Completion | Exception
Scripted = Answer | Callable[[LLMRequest], Answer]


class ScriptedLLM:
    """Gives the answers of a script, one a request, in order; safe to share between threads.

    For example::

        llm = ScriptedLLM(['{"reasoning": "nothing new"}', ModelUnavailable("down.", hint="Wait.")])
        llm.complete(request, timeout_seconds=5.0)
        assert llm.requests == [request]

    Args:
        answers: Each a text, a ``Completion``, an exception to raise, or a callable from the request to one of these.

    Attributes:
        requests: Every request so far, the ones that ended in an exception included.
    """

    def __init__(self, answers: Iterable[Scripted]) -> None:
        self.requests: list[LLMRequest] = []
        self._answers = iter(answers)
        self._lock = threading.Lock()

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:  # noqa: ARG002 - the protocol's
        """The next answer of the script, at once.

        Raises:
            ModelUnavailable: If the script has no further answer.
            Exception: Whatever the script holds.
        """
        with self._lock:
            self.requests.append(request)
            asked = len(self.requests)
            answer = next(self._answers, None)
        if answer is None:
            raise ModelUnavailable(
                f"the script of this model has no answer to request {asked}.", hint="Add one to ScriptedLLM([...])."
            )
        given = answer(request) if callable(answer) else answer
        if isinstance(given, Exception):
            raise given
        return given if isinstance(given, Completion) else Completion(given)


def open_client(
    config: LLMConfig, folder: Path = Path(), allows: Callable[[int], bool] = lambda _limit: True
) -> LLMClient | None:
    """The client of ``llm.provider``; None where the server calls no model itself (``none``, ``sampling``).

    A missing key, package, program or server is no error yet: it is raised by ``complete``, so that conversations wait
    with that reason.

    Args:
        config: Settings of the model.
        folder: Where a program works.
        allows: Counts a program's calls of today; see ``CommandModel``.

    Raises:
        ModelUnavailable: If the provider needs ``llm.model`` and there is none.
    """
    if config.provider == COMMAND:
        from memory_core.core.llm.command_model import CommandModel

        return CommandModel(config, folder, allows)
    if config.provider not in PROVIDERS:
        return None
    if not config.model.strip():
        raise ModelUnavailable(
            f"setting 'llm.model' is empty, and provider '{config.provider}' needs it.",
            hint="Name the model in llm.model, or set llm.provider to none.",
        )
    from memory_core.core.llm.endpoint import RemoteModel

    return RemoteModel(
        config.provider, config.model, config.base_url, structure=config.structure, retries=config.retries
    )
