"""The update loop: a conversation and what is stored in, operations out, in as few model requests as it takes.

``MemoryReActOrchestrator`` is without I/O towards the model: a generator yields requests and is sent completions,
so that one loop serves a provider, MCP sampling and a scripted model. It reads through what it is given and never
writes. Never more than ``max_iterations + 2`` requests; similarity alone never merges, it links.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator

from memory_core.errors import ModelFailed
from memory_core.llm.client import Completion, LLMRequest
from memory_core.llm.structured import JSONAdapter
from memory_core.model.changes import CommitReceipt
from memory_core.model.operations import LINK_RELATIONS
from memory_core.model.reasoning import ReasoningAction
from memory_core.react.actions import ActionRunner
from memory_core.react.conversation import (
    EARLIER_SHARE,
    Conversation,
    Outcome,
    background,
    conversation_budget,
    hint_lines,
    language_line,
    transcript,
)
from memory_core.react.deliberation import Deliberation, Preview
from memory_core.react.exchange import Exchange, fixed_tokens
from memory_core.react.guide import TypeGuide
from memory_core.react.prefetch import Prefetched, Prefetcher
from memory_core.react.prompts import PromptLibrary
from memory_core.react.review import Neighbours, Verdict, listed, results_of
from memory_core.scoring.tokens import count_tokens

#: Shares of the prompt: the static part at most; of the rest what is stored, and what a short conversation leaves.
_SYSTEM_SHARE = 0.44
_CONTEXT_SHARE = 0.27
_SPARE_SHARE = 0.5
_HINT_TOKENS = 150
_BEFORE = "Earlier messages, remembered already, for context only:"


class MemoryReActOrchestrator:
    """Runs extractions for one user and agent.

    Args:
        prompts: The templates.
        guide: Describes the memory types.
        prefetcher: Gathers what is stored.
        actions: Runs read actions.
        preview: Dry run of operations.
        neighbours: Finds existing memories near to new texts.
        max_iterations: Rounds of reading.
        prompt_tokens: Most tokens of a request, the schema of the answer included.
        max_tokens: Most tokens of an answer.
        neighbour_from: Tells the score from which a neighbour is near enough to be shown, and linked.
        single_pass: One request, no reading, no repair.
    """

    def __init__(
        self,
        *,
        prompts: PromptLibrary,
        guide: TypeGuide,
        prefetcher: Prefetcher,
        actions: ActionRunner,
        preview: Preview,
        neighbours: Neighbours,
        max_iterations: int,
        prompt_tokens: int,
        max_tokens: int,
        neighbour_from: Callable[[], float] = lambda: 0.8,
        single_pass: bool = False,
    ) -> None:
        self._prompts = prompts
        self._prefetcher = prefetcher
        self._actions = actions
        self._preview = preview
        self._neighbours = neighbours
        self._neighbour_from = neighbour_from
        self._rounds = 0 if single_pass else max_iterations
        self._most_requests = 1 if single_pass else max_iterations + 2
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._single_pass = single_pass
        choices = {"memory_type": [known.name for known in guide.registry.list_all()], "relation": LINK_RELATIONS}
        self._adapter = JSONAdapter(ReasoningAction, choices=choices)
        self.system = _system(prompts, guide, self._rounds, prompt_tokens)
        frame = count_tokens(prompts.render("step")) + count_tokens(prompts.render("final")) + _HINT_TOKENS
        self._available = max(0, prompt_tokens - fixed_tokens(self._adapter, self.system) - frame)

    def reading(
        self, prefetcher: Prefetcher, actions: ActionRunner, preview: Preview, neighbours: Neighbours
    ) -> MemoryReActOrchestrator:
        """The same loop over what these show: the store as one project sees it."""
        loop = copy.copy(self)
        loop._prefetcher, loop._actions = prefetcher, actions
        loop._preview, loop._neighbours = preview, neighbours
        return loop

    @property
    def conversation_tokens(self) -> int:
        """Tokens of messages that one extraction takes: the budget for ``split``."""
        return conversation_budget(self._available)

    def extract(self, conversation: Conversation) -> Generator[LLMRequest, Completion, Outcome]:
        """Find out what a conversation changes.

        Yields requests and is sent completions; whoever drives it may throw a ``ModelFailed`` in.

        Raises:
            ModelFailed: If no usable answer came within the requests allowed.
        """
        exchange = self._open(conversation, self._most_requests)
        loop = self._deliberation(exchange, self._rounds)
        answer = yield from loop.decide()
        if self._single_pass:
            return self._outcome(exchange, answer, loop, loop.readable(loop.judged(answer.operations)))
        verdicts, answer = yield from loop.review(answer)
        verdicts = yield from loop.settle(verdicts, answer)
        return self._outcome(exchange, answer, loop, verdicts)

    def mend(
        self, conversation: Conversation, outcome: Outcome, receipt: CommitReceipt
    ) -> Generator[LLMRequest, Completion, Outcome | None]:
        """After the commit: correct operations that were refused because a file changed while the model thought.

        Args:
            conversation: As given to ``extract``.
            outcome: What ``extract`` returned.
            receipt: Of the commit of ``outcome.operations``.

        Returns:
            The corrected operations alone, with the usage of this request alone; None if there is nothing to
            correct, or no request left. A model that fails leaves no operations, and a note.
        """
        items = listed(outcome.operations)
        results = results_of(items, receipt)
        conflicts = any(result.conflict for told in results for result in told)
        if not conflicts or outcome.usage.requests >= self._most_requests:
            return None
        exchange = self._open(conversation, 1, Prefetched())
        loop = self._deliberation(exchange, 0)
        stale = loop.stale(items, results)
        answer = ReasoningAction(reasoning=outcome.reasoning)
        verdicts: list[Verdict] = []
        try:
            answer = yield from loop.repair(stale, answer)
            verdicts = loop.readable(loop.judged(answer.operations))
        except ModelFailed as error:
            exchange.note(f"the refused operations were not corrected: {error.message}")
        return self._outcome(exchange, answer, loop, verdicts)

    def _deliberation(self, exchange: Exchange, rounds: int) -> Deliberation:
        return Deliberation(
            exchange,
            prompts=self._prompts,
            actions=self._actions,
            preview=self._preview,
            neighbours=self._neighbours,
            neighbour_from=self._neighbour_from(),
            rounds=rounds,
        )

    def _open(self, conversation: Conversation, requests: int, prefetched: Prefetched | None = None) -> Exchange:
        """The exchange with its first turn."""
        messages, left_out = transcript(conversation.messages, self.conversation_tokens)
        before = background(conversation.earlier, int(self.conversation_tokens * EARLIER_SHARE))
        found = prefetched
        if found is None:
            most = int(self.conversation_tokens * (1 + EARLIER_SHARE))
            spare = max(0, most - count_tokens(messages) - count_tokens(before))
            budget = int(self._available * _CONTEXT_SHARE + spare * _SPARE_SHARE)
            found = self._prefetcher.gather(conversation.messages, budget)
        values = {
            "context": found.text,
            "conversation": messages,
            "earlier": f"{_BEFORE}\n{before}\n" if before else "",
            "hints": hint_lines(conversation.hints, _HINT_TOKENS),
            "language": language_line(conversation.language),
        }
        step = self._prompts.render("step", values)
        if self._rounds == 0:
            step = f"{step}\n\n{self._prompts.render('final')}"
        exchange = Exchange(
            adapter=self._adapter,
            system=self.system,
            step=step,
            seen=found.seen,
            prompt_tokens=self._prompt_tokens,
            max_tokens=self._max_tokens,
            requests_left=requests,
            retry=lambda problem: self._prompts.render("retry", {"problem": problem}),
            may_retry=requests > 1,
        )
        if left_out:
            exchange.note(f"the first {left_out} messages did not fit into the prompt")
        return exchange

    def _outcome(
        self, exchange: Exchange, answer: ReasoningAction, loop: Deliberation, verdicts: list[Verdict]
    ) -> Outcome:
        reasoning = answer.reasoning or (answer.operations.reasoning if answer.operations else None) or ""
        return Outcome(
            operations=loop.linked(verdicts, reasoning),
            expected=exchange.expected(),
            reasoning=reasoning,
            summary=answer.summary,
            usage=exchange.usage,
            dropped=tuple(exchange.dropped),
            decisions=tuple(answer.memory_changes),
        )


def _system(prompts: PromptLibrary, guide: TypeGuide, rounds: int, prompt_tokens: int) -> str:
    """The static part: the same for every conversation under one configuration."""
    values = {"rules": prompts.render("rules"), "rounds": str(rounds)}
    bare = count_tokens(prompts.render("system", values))
    types = guide.text(int(prompt_tokens * _SYSTEM_SHARE) - bare)
    return prompts.render("system", {**values, "types": types})
