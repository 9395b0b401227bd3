"""A language model that answers from a script: for tests of Runebook and of what is built on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from memory_core.errors import ModelUnavailable
from memory_core.llm.client import Completion, LLMRequest

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
