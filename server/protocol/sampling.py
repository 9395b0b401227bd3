"""The client's own model, asked through MCP sampling in both protocol eras.

Owns: asking the client for completions, and the loops that wait for its answers between two rounds.

Up to 2025-11-25 the server sends a request while the tool runs (``SampledModel``). Since 2026-07-28 it may not:
the tool answers "input required", the client asks its model and calls the tool again. The loop stays alive in this
process between the rounds and is found by the request state, which the SDK seals; nothing runs twice, and a store
that changes between two rounds cannot change a question that was already asked.

Promises: every loop ends. The client that declines, disconnects, is late or never calls again costs the loop its
model, not the conversation: a ``ModelFailed`` is thrown into it, or it is closed, and both leave the conversation
queued. The threads and loops that wait for clients are bounded.

Does not: know what the loop does, or repair an answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import uuid4

import anyio.from_thread
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    InputRequiredResult,
    InputResponse,
    InputResponses,
    SamplingMessage,
    TextContent,
)
from pydantic import ValidationError

from memory_core.core.errors import AnswerUnusable, ModelFailed, ModelUnavailable, RunebookError
from memory_core.core.llm.client import Completion, LLMRequest, StopReason, drive
from memory_core.core.llm.structured import system_text
from memory_core.core.progress import tell
from server.http.authentication import bearer_id
from server.protocol.client_state import AnyContext, ask, is_modern
from server.protocol.json_frames import scrub
from server.protocol.turns import take_one

_logger = logging.getLogger(__name__)

#: Requests that one call of the modern era may make: every SDK's client gives up after as many rounds.
ROUNDS_LIMIT = 10

_RUNNING_LIMIT = 16  # each holds a loop, and in the legacy era one of the SDK's 40 worker threads
_SHARE_LIMIT = 4  # of one bearer of a token, who may leave its questions unanswered; the owner may have all
_STEPS_A_ROUND = 4  # what is told in one round, at least: so that progress also rises from call to call
_KEPT_LIMIT = 32  # outcomes for clients that come back late, or repeat a round whose answer they lost
_CUT = frozenset({"maxtokens", "length"})
_REFUSED = frozenset({"refusal", "contentfilter", "safety"})
_HINT = "The conversation is stored and waits; commit again, or extract it with the tools find, read and commit_memory."

Outcome = TypeVar("Outcome")


def offers_sampling(ctx: AnyContext) -> bool:
    """Whether the client behind this call lets the server ask its model."""
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        return False
    return is_modern(ctx) or ctx.session.can_send_request


class SampledModel:
    """An ``LLMClient`` that asks the client while its tool call runs; up to protocol 2025-11-25.

    Args:
        ctx: The running call; ``complete`` must be called from its worker thread.
    """

    def __init__(self, ctx: AnyContext) -> None:
        self._ctx = ctx

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once.

        Raises:
            ModelUnavailable: The client declined, failed or was late.
            AnswerUnusable: It answered without text.
            RunebookError: The connection is closed.
            asyncio.CancelledError: The call was cancelled.
        """
        try:
            question = _question(request)
            # The kind of result also reads the single block of older clients.
            answer = anyio.from_thread.run(ask, self._ctx, question, CreateMessageResultWithTools, timeout_seconds)
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise RunebookError("The client left.", hint=_HINT) from error  # nobody to ask, nobody to tell
            raise ModelUnavailable(f"The client did not run its model: {error.error.message}.", hint=_HINT) from error
        except TimeoutError as error:
            raise _late() from error
        except ValidationError as error:
            raise AnswerUnusable("The client's answer is no sampling result.", hint=_HINT) from error
        return _completion(answer)


class Sampling(Generic[Outcome]):
    """Runs loops with the models of this process's clients; safe from any thread.

    Args:
        running_limit: Loops that may wait for their clients at once; one more is told that its model is unavailable.
        share_limit: Those of one bearer of a token.
    """

    def __init__(self, running_limit: int = _RUNNING_LIMIT, share_limit: int = _SHARE_LIMIT) -> None:
        self._lock = threading.Lock()
        self._limit = running_limit
        self._share_limit = share_limit
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, _WaitingLoop[Outcome]] = {}
        self._ended: dict[str, _WaitingLoop[Outcome]] = {}

    def run(
        self,
        start: Callable[[], Generator[LLMRequest, Completion, Outcome]],
        ctx: AnyContext,
        deadline_seconds: float,
    ) -> Outcome | InputRequiredResult:
        """Run a loop, or go on with the one that this call continues.

        Blocks while the client thinks, up to the deadline, if the client is of the legacy era.

        Args:
            start: Makes the loop; not called when the call continues one.
            ctx: The running call, of a client that ``offers_sampling``.
            deadline_seconds: Time for all of the loop's requests together.

        Returns:
            What the loop returned, or, for the modern era, what the tool must return so that the client answers.

        Raises:
            ModelUnavailable: A client came back to a loop that had failed or was closed.
            RunebookError: The client left; or whatever ``start`` or the loop raised.
        """
        if not is_modern(ctx):
            return self._run_within_the_call(start, ctx, deadline_seconds)
        with self._lock:
            state = ctx.request_state or ""
            loop = self._waiting.get(state) or self._ended.get(state)
        if loop is not None:
            return loop.reply(ctx.input_responses)
        ends_at = time.monotonic() + deadline_seconds
        steps, bearer = start(), bearer_id()
        if not self._admit(bearer):
            return drive(steps, _Overloaded(), deadline_seconds)
        loop = _WaitingLoop(steps, bearer, self._move_to_ended)
        with self._lock:
            self._waiting[loop.key] = loop
        loop.begin(ends_at)
        return loop.reply(None)

    def close(self) -> None:
        """End the loops that wait for their clients; they leave their conversations queued."""
        with self._lock:
            waiting = list(self._waiting.values())
            self._ended.clear()
        for loop in waiting:
            loop.close()

    def _run_within_the_call(
        self,
        start: Callable[[], Generator[LLMRequest, Completion, Outcome]],
        ctx: AnyContext,
        deadline_seconds: float,
    ) -> Outcome:
        bearer = bearer_id()
        if not self._admit(bearer):
            return drive(start(), _Overloaded(), deadline_seconds)
        try:
            return drive(start(), SampledModel(ctx), deadline_seconds)  # closes the loop if the call is cancelled
        finally:
            with self._lock:
                take_one(self._running, bearer)

    def _admit(self, bearer: str) -> bool:
        with self._lock:
            has_share = not bearer or self._running[bearer] < self._share_limit
            if not has_share or self._running.total() >= self._limit:
                return False
            self._running[bearer] += 1
            return True

    def _move_to_ended(self, loop: _WaitingLoop[Outcome]) -> None:
        """Move ``loop`` from the waiting to the ended."""
        with self._lock:
            if self._waiting.pop(loop.key, None) is None:
                return
            take_one(self._running, loop.bearer)
            self._ended[loop.key] = loop
            while len(self._ended) > _KEPT_LIMIT:
                del self._ended[next(iter(self._ended))]


@dataclass(frozen=True, slots=True)
class _Finished(Generic[Outcome]):
    """What a loop returned."""

    outcome: Outcome


class _WaitingLoop(Generic[Outcome]):
    """One loop of the modern era, from its first request to its outcome.

    Args:
        steps: The loop, not started.
        bearer: Whose it is; empty for the owner.
        on_end: Called once, when the loop has ended.
    """

    def __init__(
        self,
        steps: Generator[LLMRequest, Completion, Outcome],
        bearer: str,
        on_end: Callable[[_WaitingLoop[Outcome]], None],
    ) -> None:
        self.key = uuid4().hex
        self.bearer = bearer
        self._steps = steps
        self._on_end = on_end
        self._lock = threading.Lock()
        self._timer = threading.Timer(0.0, self._expire)
        self._asked = 0
        self._request: LLMRequest | None = None
        self._finished: _Finished[Outcome] | None = None

    def begin(self, ends_at: float) -> None:
        """Run to the first request; the loop is given up at ``ends_at`` on the monotonic clock."""
        with self._lock:
            self._advance(None)
            if self._request is not None:
                self._timer.interval = max(0.0, ends_at - time.monotonic())
                self._timer.daemon = True
                self._timer.start()

    def reply(self, answers: InputResponses | None) -> Outcome | InputRequiredResult:
        """Take the answer to the pending request, if it is among ``answers``; then the next request or the outcome.

        Answers to other requests are repeated rounds: they are told again what is pending.
        """
        with self._lock:
            if self._request is not None and (answer := (answers or {}).get(self._question_key())) is not None:
                tell("the client's model answered", steps_before=_STEPS_A_ROUND * self._asked)
                self._advance(_read(answer))
            if self._request is not None:
                return InputRequiredResult(
                    input_requests={self._question_key(): _question(self._request)}, request_state=self.key
                )
            if self._finished is None:
                raise ModelUnavailable("The extraction ended early.", hint=_HINT)
            return self._finished.outcome

    def close(self) -> None:
        """End the loop where it stands."""
        with self._lock:
            self._request = None
            self._end()

    def _question_key(self) -> str:
        return f"completion_{self._asked}"

    def _advance(self, answer: Completion | ModelFailed | None, refusal: ModelFailed | None = None) -> None:
        """Run to the next request; with a ``refusal`` to the end. The caller holds the lock."""
        self._request = None
        try:
            if refusal is None and self._asked == ROUNDS_LIMIT:
                refusal = ModelUnavailable(f"A client takes part in {ROUNDS_LIMIT} rounds at most.", hint=_HINT)
            step = _resume(self._steps, answer)
            while refusal is not None and isinstance(step, LLMRequest):
                step = _resume(self._steps, refusal)
            if isinstance(step, LLMRequest):
                self._request = step
                self._asked += 1
            else:
                self._finished = step
        finally:
            if self._request is None:
                self._end()

    def _end(self) -> None:
        self._timer.cancel()
        self._steps.close()
        self._on_end(self)

    def _expire(self) -> None:
        with self._lock:
            if self._request is None:
                return
            late = _late()
            try:
                self._advance(late, refusal=late)
            except RunebookError as error:
                _logger.error("an extraction that had run out of time could not be queued: %s", error)


class _Overloaded:
    """An ``LLMClient`` that is never there."""

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:  # noqa: ARG002 (the protocol's)
        """Refuse."""
        raise ModelUnavailable("Too many conversations wait for their clients' models.", hint=_HINT)


def _resume(
    steps: Generator[LLMRequest, Completion, Outcome], answer: Completion | ModelFailed | None
) -> LLMRequest | _Finished[Outcome]:
    try:
        if answer is None:
            return next(steps)
        return steps.throw(answer) if isinstance(answer, ModelFailed) else steps.send(answer)
    except StopIteration as end:
        return _Finished(end.value)


def _question(request: LLMRequest) -> CreateMessageRequest:
    """``request`` for the client; sampling knows no structured output, so the schema is part of the text."""
    return CreateMessageRequest(
        params=CreateMessageRequestParams(
            system_prompt=scrub(system_text(request, "text")),
            messages=[
                SamplingMessage(role=turn.role, content=TextContent(type="text", text=scrub(turn.text)))
                for turn in request.turns
            ],
            max_tokens=request.max_tokens,
        )
    )


def _read(answer: InputResponse) -> Completion | ModelFailed:
    if not isinstance(answer, CreateMessageResult | CreateMessageResultWithTools):
        return AnswerUnusable("The client's answer is no sampling result.", hint=_HINT)
    try:
        return _completion(answer)
    except AnswerUnusable as error:
        return error


def _completion(answer: CreateMessageResult | CreateMessageResultWithTools) -> Completion:
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    stop = _stop_reason(answer.stop_reason)
    if not texts and stop is StopReason.COMPLETE:
        raise AnswerUnusable("The client's model answered without text.", hint=_HINT)
    return Completion("".join(texts), stop, model=answer.model)


def _stop_reason(said: str | None) -> StopReason:
    """Hosts pass on their provider's spelling: ``maxTokens``, ``max_tokens``, ``length``."""
    word = (said or "").replace("_", "").replace("-", "").lower()
    if word in _CUT:
        return StopReason.LENGTH
    return StopReason.REFUSAL if word in _REFUSED else StopReason.COMPLETE


def _late() -> ModelUnavailable:
    return ModelUnavailable(
        "The client's model did not answer in time.", hint=f"{_HINT} llm.deadline_seconds sets the time."
    )
