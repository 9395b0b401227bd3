"""A language model whose calls are counted: how often it was asked, what for, and what that cost.

Every call that Runebook makes goes through here, as a client (``CountedModel``) or, where a client's own model answers
over MCP, as a loop that yields its requests (``counted``). Changes neither requests nor answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from memory_core.errors import ModelFailed
from memory_core.llm.client import Completion, LLMClient, LLMRequest
from memory_core.storage.tables.model_calls import ModelCalls

T = TypeVar("T")

#: Takes note of one call.
Note = Callable[[ModelCalls], None]


class CountedModel:
    """``client``, counted for one user.

    Args:
        client: Answers.
        note: Takes note of each call, answered or not.
        space: The user's space.
    """

    def __init__(self, client: LLMClient, note: Note, space: str) -> None:
        self._client = client
        self._note = note
        self._space = space

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once; see ``LLMClient.complete``. A call that was broken off from outside counts as one that failed."""
        answer: Completion | None = None
        try:
            answer = self._client.complete(request, timeout_seconds)
        finally:
            self._note(_call(self._space, request, answer))
        return answer


def counted(
    steps: Generator[LLMRequest, Completion, T], note: Note, space: str
) -> Generator[LLMRequest, Completion, T]:
    """The same loop; each request that is answered, or fails, is noted."""
    try:
        request = next(steps)
        while True:
            try:
                completion = yield request
            except ModelFailed as error:
                note(_call(space, request, None))
                request = steps.throw(error)
            else:
                note(_call(space, request, completion))
                request = steps.send(completion)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        steps.close()


def _call(space: str, request: LLMRequest, answer: Completion | None) -> ModelCalls:
    if answer is None:
        return ModelCalls(space, request.purpose, failures=1)
    usage = answer.usage
    return ModelCalls(
        space,
        request.purpose,
        answer.model,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
    )
