"""A real store, the loop over it, and a driver that answers with a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from memory_core.core.errors import ModelFailed
from memory_core.core.extract.brief import Brief, BriefWriter
from memory_core.core.extract.loop import MemoryReActOrchestrator
from memory_core.core.extract.prefetch import Prefetcher
from memory_core.core.extract.prompts import Conversation, PromptLibrary, TypeGuide
from memory_core.core.extract.store_view import StoreView
from memory_core.core.llm.client import Completion, LLMRequest, StopReason, TokenUsage
from memory_core.core.memory.message import Message
from memory_core.core.memory.operations import compact_schema
from memory_core.core.text.tokens import count_tokens
from memory_core.runebook import Runebook

T = TypeVar("T")
USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"
BEGIN = datetime(2024, 3, 5, 10, 0, tzinfo=UTC)

NOTHING = {"reasoning": "nothing", "operations": {}}

#: An answer: an object, raw text, a completion, a failure to throw in, or a function of the request.
Answer = Mapping[str, Any] | str | Completion | ModelFailed | Callable[[LLMRequest], Any]


def size(request: LLMRequest) -> int:
    """Tokens of everything a provider is sent, the schema in its compact form."""
    slim = compact_schema(request.schema, descriptions=False)
    schema = json.dumps(slim, ensure_ascii=False, separators=(",", ":"))
    return count_tokens("\n".join([request.system, schema, *(turn.text for turn in request.turns)]))


class NearView(StoreView):
    """The store as the loop sees it, with neighbours that a test may set."""

    near: Callable[[Sequence[str]], Any] | None = None

    def neighbours(self, texts: Sequence[str]) -> Any:
        return super().neighbours(texts) if self.near is None else self.near(texts)

    @property
    def near_from(self) -> float:
        return 0.6


class Stage:
    """One store with everything that the loop is wired to."""

    def __init__(self, memory: Runebook, **settings: Any) -> None:
        self.memory = memory
        self.requests: list[LLMRequest] = []
        self.prompts = PromptLibrary(settings.pop("prompt_dirs", ()))
        self.guide = TypeGuide(memory.registry, self.prompts)
        self.view = NearView(
            memory.store, memory.registry, memory.commits, memory.browser, memory.retriever, memory.indexer.catalog
        )
        self.prefetcher = Prefetcher(self.guide, self.view)
        self.settings: dict[str, Any] = {"max_iterations": 3, "prompt_tokens": 12_000, "max_tokens": 4_000, **settings}
        self.loop = MemoryReActOrchestrator(self.prompts, self.guide, **self.settings)

    def brief(self, talk: Conversation | None = None, budget: int = 8_000, **how: Any) -> Brief:
        """A brief about a conversation, or about the one that the client has before it."""
        writer = BriefWriter(self.prompts, self.guide, budget)
        return writer.write_unstored(self.view, **how) if talk is None else writer.write(talk, self.view, **how)

    def commit(self, outcome: Any) -> Any:
        return self.memory.commits.apply_operations(outcome.operations, seen=outcome.seen)

    def drive(self, loop: Generator[LLMRequest, Completion, T], *answers: Answer, always: Answer | None = None) -> T:
        """Run a generator to its end; running out of answers is a failure, and so are answers left over."""
        self.requests = []
        waiting = list(answers)
        try:
            request = next(loop)
            while True:
                self.requests.append(request)
                assert size(request) <= self.settings["prompt_tokens"]
                assert waiting or always, f"an unexpected request: {request.turns[-1].text[-600:]}"
                answer = waiting.pop(0) if waiting else always
                answer = answer(request) if callable(answer) else answer
                request = loop.throw(answer) if isinstance(answer, ModelFailed) else loop.send(completion(answer))
        except StopIteration as end:
            assert not waiting, f"{len(waiting)} answers were never asked for"
            value: T = end.value
            return value

    def extract(self, talk: Conversation, *answers: Answer) -> Any:
        return self.drive(self.loop.extract(talk, self.view), *answers)

    def said(self, at: int = -1) -> str:
        """The last turn of a request."""
        return self.requests[at].turns[-1].text


def completion(answer: Any) -> Completion:
    if isinstance(answer, Completion):
        return answer
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Completion(text, usage=TokenUsage(100, 10, 5, 1))


def cut() -> Completion:
    return Completion('{"reasoning": "so f', StopReason.LENGTH)


def talk(*texts: str, **given: Any) -> Conversation:
    """A conversation that begins with the user; roles alternate, a minute apart."""
    messages = tuple(
        Message(role=("user", "assistant")[index % 2], text=text, time=BEGIN + timedelta(minutes=index))
        for index, text in enumerate(texts)
    )
    return Conversation("s1", messages, **given)


def operations(*writes: Any, edits: Any = (), deletes: Any = (), overviews: Any = ()) -> dict[str, Any]:
    return {
        "reasoning": "because it was said",
        "operations": {
            "write_operations": list(writes),
            "edit_operations": list(edits),
            "delete_operations": list(deletes),
            "overview_operations": list(overviews),
        },
    }


def reads(*uris: str) -> dict[str, Any]:
    return {"reasoning": "look", "actions": [{"action_type": "read", "params": {"uri": uri}} for uri in uris]}
