"""The update loop: a conversation and what is stored in, operations out, in as few model requests as it takes.

``MemoryReActOrchestrator`` is without I/O towards the model: a generator yields requests and is sent completions,
so that one loop serves a provider, MCP sampling and a scripted model. It reads through what it is given and never
writes. Never more than ``max_iterations + 2`` requests; similarity alone never merges, it links.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TypeAlias

from memory_core.core.errors import AnswerCut, AnswerUnusable, InvalidInput, ModelRefused
from memory_core.core.extract.dialogue import Dialogue, Frame, fixed_tokens
from memory_core.core.extract.operation_checks import (
    Verdict,
    assembled,
    for_owner,
    judge,
    linked,
    listed,
    new_text,
    problem_text,
    subject,
    targets,
    without_counts,
)
from memory_core.core.extract.prefetch import Prefetcher
from memory_core.core.extract.prompts import (
    EARLIER_SHARE,
    Conversation,
    Outcome,
    PromptLibrary,
    TypeGuide,
    canonical,
    conversation_budget,
    cut_end,
    earlier_talk,
    hint_lines,
    language_line,
    transcript,
)
from memory_core.core.extract.read_actions import run, show
from memory_core.core.extract.store_view import Reading, StoreView
from memory_core.core.llm.client import Completion, LLMRequest
from memory_core.core.llm.structured import JSONAdapter
from memory_core.core.memory.operations import LINK_RELATIONS, DeleteOp, MemoryOperations, ReasoningAction, WriteOp
from memory_core.core.memory.results import Action, OperationResult
from memory_core.core.text.tokens import count_tokens

Asking: TypeAlias = Generator[LLMRequest, Completion, ReasoningAction]

#: Failures of an answer; a model that cannot be reached leaves the whole conversation waiting instead.
_UNUSABLE = (AnswerCut, AnswerUnusable, ModelRefused)
_PROBLEM_SHARE = 0.4
_NEIGHBOURS_SHOWN = 5
#: An answer with more operations is none: each is tried out, and a search looks for what is near.
_OPERATIONS_MOST = 500
_ASKED = "What you asked for:"
_UNREAD = (
    "Nothing is applied yet. Your operations concern these stored memories, which you have not read. Look at them, "
    "then give all operations anew: change a memory that is about the same subject, or keep both."
)


@dataclass(eq=False, repr=False)
class _Run:
    """One run of the loop, over one dialogue.

    Attributes:
        dialogue: With its first turn.
        prompts: The templates.
        view: The store.
        rounds: Rounds of reading.
    """

    dialogue: Dialogue
    prompts: PromptLibrary
    view: StoreView
    rounds: int
    _near: dict[str, list[tuple[str, float]]] = field(default_factory=dict, init=False)

    def decide(self) -> Asking:
        """Ask, and read what the model wants to read, until it gives operations.

        Raises:
            ModelFailed: If no usable answer came.
        """
        answer = yield from self.dialogue.ask(self._problem)
        while answer.actions and self._may_read():
            self.rounds -= 1
            readings, notes = run(self.view, answer.actions, self._reading_room(), self.dialogue.answered())
            self.dialogue.note(*notes)
            purpose = " ".join([_ASKED, *(f"({note}.)" for note in notes)])
            self.dialogue.reply(answer, self._reading_frame(purpose), readings)
            answer = yield from self.dialogue.ask(self._problem)
        if answer.actions:
            self.dialogue.note(f"{len(answer.actions)} read actions were ignored: no reading was left")
        return answer

    def review(
        self, answer: ReasoningAction
    ) -> Generator[LLMRequest, Completion, tuple[list[Verdict], ReasoningAction]]:
        """Let the model decide anew where its operations touch, or come near to, memories that it has not read.

        Returns:
            A verdict for each of its last operations, and the answer that gave them.
        """
        verdicts = self.judged(answer.operations)
        offered: set[str] = set()
        while self._may_read():
            wanted = [uri for uri in self._unread(verdicts) if uri not in offered]
            readings = show(self.view, wanted, self._reading_room())
            if not readings:
                break
            offered.update(wanted)
            self.rounds -= 1
            refused = [verdict for verdict in verdicts if verdict.refused]
            problems = self._problems(refused, self._reading_room() - _cost(readings))
            purpose = _UNREAD + (f"\n\nRefused so far:\n{problems}" if problems else "")
            self.dialogue.reply(answer, self._reading_frame(purpose), readings)
            try:
                answer = yield from self.decide()
            except _UNUSABLE as error:
                self.dialogue.note(f"the operations were not reconsidered: {error.message}")
                break
            verdicts = self.judged(answer.operations)
        return verdicts, answer

    def settle(
        self, verdicts: list[Verdict], answer: ReasoningAction
    ) -> Generator[LLMRequest, Completion, list[Verdict]]:
        """Give refused operations, and those on unread files, one repair round.

        Returns:
            What is to be committed. What is still refused stays in, for the receipt to say so; what touches a file
            that was never read whole is left out.
        """
        bad = [verdict for verdict in verdicts if not verdict.sound]
        good = [verdict.operation for verdict in verdicts if verdict.sound]
        if bad and self.dialogue.requests_left:
            try:
                repaired = yield from self.repair(bad, answer)
            except _UNUSABLE as error:
                self.dialogue.note(f"the refused operations were not corrected: {error.message}")
            else:
                fresh = [item for item in listed(repaired.operations or MemoryOperations()) if item not in good]
                again = {subject(item) for item in fresh}
                gone = [subject(verdict.operation) for verdict in bad]
                self.dialogue.note(*(f"{name}: withdrawn after a refusal" for name in gone if name not in again))
                verdicts = self.judged(assembled([*good, *fresh]))
        return self.readable(verdicts)

    def repair(self, bad: Sequence[Verdict], answer: ReasoningAction) -> Asking:
        """Ask once for corrected operations, with reasons, hints and the files' present texts.

        Raises:
            ModelFailed: If no usable answer came.
        """
        problems = self._problems(bad, int(self.dialogue.room * _PROBLEM_SHARE))
        empty = self.prompts.render("repair", {"problems": problems})
        uris = dict.fromkeys(uri for verdict in bad for uri in targets(verdict))
        files = show(self.view, list(uris), self.dialogue.room - count_tokens(empty))
        short = ReasoningAction(reasoning=answer.reasoning, memory_changes=answer.memory_changes)
        self.dialogue.reply(
            short, lambda text: self.prompts.render("repair", {"problems": problems, "files": text}), files
        )
        self.rounds = 0
        return (yield from self.dialogue.ask(_repair_problem))

    def judged(self, operations: MemoryOperations | None) -> list[Verdict]:
        """Try operations out, without what the system counts by itself."""
        placed, moved = for_owner(operations or MemoryOperations(), self.view)
        cleaned, notes = without_counts(placed, self.view)
        self.dialogue.note(*moved, *notes)
        items = listed(cleaned)
        # A receipt names what was refused for its secrets behind all others.
        refusals = [self.view.refusals(assembled([item])) for item in items]
        kept = assembled([item for item, refused in zip(items, refusals, strict=True) if not refused])
        try:
            receipt = self.view.preview(kept) if len(kept) else None
        except InvalidInput as error:
            refusal = OperationResult("operations", "", Action.REJECTED, error.message, error.hint)
            return [Verdict(item, (), refused or (refusal,)) for item, refused in zip(items, refusals, strict=True)]
        judged = iter(judge(kept, receipt, self.dialogue.seen_whole(), self.view) if receipt is not None else ())
        return [
            Verdict(item, (), refused) if refused else next(judged)
            for item, refused in zip(items, refusals, strict=True)
        ]

    def readable(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Those that touch no file unread; the others are reported."""
        unread = [verdict for verdict in verdicts if verdict.unread]
        self.dialogue.note(
            *(f"{subject(item.operation)}: left out, {item.unread[0]} was not read whole" for item in unread)
        )
        return [verdict for verdict in verdicts if not verdict.unread]

    def with_links(self, verdicts: Sequence[Verdict], reasoning: str) -> MemoryOperations:
        """The operations, new memories linked to their strong neighbours; similarity alone does no more."""
        gone = {canonical(item.operation.uri) for item in verdicts if isinstance(item.operation, DeleteOp)}
        self._meet(verdicts)
        operations = []
        for verdict in verdicts:
            item = verdict.operation
            if isinstance(item, WriteOp) and verdict.creates:
                item = linked(item, [pair for pair in self._strong(item) if pair[0] not in gone])
            operations.append(item)
        return assembled(operations, reasoning or None)

    def _may_read(self) -> bool:
        return self.rounds > 0 and self.dialogue.requests_left > 0

    def _problem(self, answer: ReasoningAction) -> str | None:
        """What is wrong with an answer; a request to read is fine while reading is possible."""
        if answer.actions and self._may_read():
            return None
        if answer.operations is not None and len(answer.operations):
            return _too_many(answer.operations)
        if answer.actions:
            return "it asks to read, but no reading is left; it must give operations."
        if any(change.change_type != "noop" for change in answer.memory_changes):
            return "it names changes but gives no operations for them."
        said = (answer.reasoning, answer.operations and answer.operations.reasoning)
        if not any(text and text.strip() for text in said) and not answer.memory_changes:
            return "it holds neither operations nor a reason why there are none."
        return None

    def _unread(self, verdicts: Sequence[Verdict]) -> list[str]:
        """Files to show: those that operations touch, then strong neighbours of new memories."""
        known = self.dialogue.seen_whole()
        self._meet(verdicts)
        touched = [uri for verdict in verdicts for uri in verdict.unread]
        near = [
            uri
            for verdict in verdicts
            if isinstance(verdict.operation, WriteOp) and verdict.creates
            for uri, _ in self._strong(verdict.operation)
            if uri not in known
        ]
        return list(dict.fromkeys((*touched, *near[:_NEIGHBOURS_SHOWN])))

    def _meet(self, verdicts: Sequence[Verdict]) -> None:
        """Look up the neighbours of new memories, each text once."""
        new = [item.operation for item in verdicts if isinstance(item.operation, WriteOp) and item.creates]
        texts = list(dict.fromkeys(text for text in map(new_text, new) if text.strip() and text not in self._near))
        if texts:
            for text, pairs in zip(texts, self.view.neighbours(texts), strict=True):
                self._near[text] = list(pairs)

    def _strong(self, write: WriteOp) -> list[tuple[str, float]]:
        return [pair for pair in self._near.get(new_text(write), ()) if pair[1] >= self.view.near_from]

    def _problems(self, verdicts: Sequence[Verdict], budget: int) -> str:
        each = max(0, budget) // max(1, len(verdicts))
        return "\n\n".join(text for item in verdicts if (text := cut_end(problem_text(item), each)))

    def _reading_room(self) -> int:
        frame = self._reading_frame(_UNREAD)("")
        return max(0, self.dialogue.room - count_tokens(frame) - count_tokens(self.prompts.render("final")))

    def _reading_frame(self, purpose: str) -> Frame:
        closing = "" if self.rounds > 0 else f"\n\n{self.prompts.render('final')}"
        return lambda text: (
            self.prompts.render("readings", {"purpose": purpose, "readings": text or "(nothing)"}) + closing
        )


def _repair_problem(answer: ReasoningAction) -> str | None:
    if answer.actions and answer.operations is None:
        return "it asks to read, but no reading is left; it must give the corrected operations."
    return None if answer.operations is None else _too_many(answer.operations)


def _too_many(operations: MemoryOperations) -> str | None:
    count = len(operations)
    return f"it gives {count:,} operations; give at most {_OPERATIONS_MOST}." if count > _OPERATIONS_MOST else None


def _cost(readings: Sequence[Reading]) -> int:
    return sum(count_tokens(reading.text) for reading in readings)


#: Shares of the prompt: the static part at most; of the rest what is stored, and what a short conversation leaves.
_SYSTEM_SHARE = 0.44
_CONTEXT_SHARE = 0.27
_SPARE_SHARE = 0.5
_HINT_TOKENS = 150
_BEFORE = "Earlier messages, remembered already, for context only:"


@dataclass(eq=False, repr=False)
class MemoryReActOrchestrator:
    """Runs extractions for one user and agent.

    Attributes:
        prompts: The templates.
        guide: Describes the memory types.
        max_iterations: Rounds of reading.
        prompt_tokens: Most tokens of a request, the schema of the answer included.
        max_tokens: Most tokens of an answer.
        single_pass: One request, no reading, no repair.
    """

    prompts: PromptLibrary
    guide: TypeGuide
    _: KW_ONLY
    max_iterations: int
    prompt_tokens: int
    max_tokens: int
    single_pass: bool = False

    def __post_init__(self) -> None:
        self._rounds = 0 if self.single_pass else self.max_iterations
        self._most_requests = 1 if self.single_pass else self.max_iterations + 2

    # Made with the first extraction: most open stores never extract.

    @cached_property
    def system(self) -> str:
        """The static part of each prompt: the same for every conversation under one configuration."""
        values = {"rules": self.prompts.render("rules"), "rounds": str(self._rounds)}
        bare = count_tokens(self.prompts.render("system", values))
        types = self.guide.text(int(self.prompt_tokens * _SYSTEM_SHARE) - bare)
        return self.prompts.render("system", {**values, "types": types})

    @cached_property
    def _adapter(self) -> JSONAdapter[ReasoningAction]:
        types = [known.name for known in self.guide.registry.list_all()]
        return JSONAdapter(ReasoningAction, choices={"memory_type": types, "relation": LINK_RELATIONS})

    @cached_property
    def _available(self) -> int:
        """Tokens that a request leaves for the conversation and what is shown beside it."""
        frame = count_tokens(self.prompts.render("step")) + count_tokens(self.prompts.render("final")) + _HINT_TOKENS
        return max(0, self.prompt_tokens - fixed_tokens(self._adapter, self.system) - frame)

    @property
    def conversation_tokens(self) -> int:
        """Tokens of messages that one extraction takes: the budget for ``windows``."""
        return conversation_budget(self._available)

    def extract(self, conversation: Conversation, view: StoreView) -> Generator[LLMRequest, Completion, Outcome]:
        """Find out what a conversation changes.

        Yields requests and is sent completions; whoever drives it may throw a ``ModelFailed`` in.

        Args:
            conversation: What to extract from.
            view: The store as the conversation's project sees it.

        Raises:
            ModelFailed: If no usable answer came within the requests allowed.
        """
        dialogue = self._open(conversation, view)
        loop = _Run(dialogue, self.prompts, view, self._rounds)
        answer = yield from loop.decide()
        if self.single_pass:
            return self._outcome(dialogue, answer, loop, loop.readable(loop.judged(answer.operations)))
        verdicts, answer = yield from loop.review(answer)
        verdicts = yield from loop.settle(verdicts, answer)
        return self._outcome(dialogue, answer, loop, verdicts)

    def _open(self, conversation: Conversation, view: StoreView) -> Dialogue:
        """The dialogue with its first turn, which shows what is stored in the view."""
        messages, left_out = transcript(conversation.messages, self.conversation_tokens)
        before = earlier_talk(conversation.earlier, int(self.conversation_tokens * EARLIER_SHARE))
        spare = int(self.conversation_tokens * (1 + EARLIER_SHARE)) - count_tokens(messages) - count_tokens(before)
        budget = int(self._available * _CONTEXT_SHARE + max(0, spare) * _SPARE_SHARE)
        found = Prefetcher(self.guide, view).gather(conversation.messages, budget)
        values = {
            "context": found.text,
            "conversation": messages,
            "earlier": f"{_BEFORE}\n{before}\n" if before else "",
            "hints": hint_lines(conversation.hints, _HINT_TOKENS),
            "language": language_line(conversation.language),
        }
        step = self.prompts.render("step", values)
        if self._rounds == 0:
            step = f"{step}\n\n{self.prompts.render('final')}"
        dialogue = Dialogue(
            adapter=self._adapter,
            system=self.system,
            first_turn=step,
            seen=found.seen,
            prompt_tokens=self.prompt_tokens,
            max_tokens=self.max_tokens,
            requests_left=self._most_requests,
            retry=lambda problem: self.prompts.render("retry", {"problem": problem}),
        )
        if left_out:
            dialogue.note(f"the first {left_out} messages did not fit into the prompt")
        return dialogue

    def _outcome(self, dialogue: Dialogue, answer: ReasoningAction, loop: _Run, verdicts: list[Verdict]) -> Outcome:
        reasoning = answer.reasoning or (answer.operations.reasoning if answer.operations else None) or ""
        return Outcome(
            operations=loop.with_links(verdicts, reasoning),
            seen=dialogue.seen_whole(),
            reasoning=reasoning,
            summary=answer.summary,
            dropped=tuple(dialogue.dropped),
            decisions=tuple(answer.memory_changes),
        )
