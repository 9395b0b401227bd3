"""How one extraction comes to its operations: reading, deciding, reviewing, repairing.

Rounds of reading are the model's own actions, or the system's where operations touch memories that the model has
not read, or come near to ones that it does not know. What is refused gets one repair round. Never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from memory_core.errors import AnswerCut, AnswerUnusable, InvalidInput, ModelRefused
from memory_core.llm.client import Completion, LLMRequest
from memory_core.model.changes import Action, CommitReceipt, OperationResult
from memory_core.model.operations import DeleteOp, MemoryOperations, WriteOp
from memory_core.model.reasoning import ReasoningAction
from memory_core.react.actions import ActionRunner, Reading
from memory_core.react.display import canonical
from memory_core.react.exchange import Exchange, Frame
from memory_core.react.fencing import cut_end
from memory_core.react.prompts import PromptLibrary
from memory_core.react.review import (
    Neighbours,
    Operation,
    Verdict,
    assembled,
    judge,
    linked,
    listed,
    new_text,
    problem_text,
    subject,
    targets,
    without_counts,
)
from memory_core.scoring.tokens import count_tokens

#: A dry run: what operations would do now, whether or not the model saw the files. Nothing is written.
Preview = Callable[[MemoryOperations], CommitReceipt]
Asking: TypeAlias = Generator[LLMRequest, Completion, ReasoningAction]

#: Failures of an answer; a model that cannot be reached leaves the whole conversation waiting instead.
_UNUSABLE = (AnswerCut, AnswerUnusable, ModelRefused)
_PROBLEM_SHARE = 0.4
_NEIGHBOURS_SHOWN = 5
_ASKED = "What you asked for:"
_UNREAD = (
    "Nothing is applied yet. Your operations concern these stored memories, which you have not read. Look at them, "
    "then give all operations anew: change a memory that is about the same subject, or keep both."
)


class Deliberation:
    """The loop over one exchange.

    Args:
        exchange: With its first turn.
        prompts: The templates.
        actions: Runs read actions.
        preview: Dry run of operations.
        neighbours: Finds existing memories near to new texts.
        neighbour_from: Score from which they count.
        rounds: Rounds of reading.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        prompts: PromptLibrary,
        actions: ActionRunner,
        preview: Preview,
        neighbours: Neighbours,
        neighbour_from: float,
        rounds: int,
    ) -> None:
        self._exchange = exchange
        self._prompts = prompts
        self._actions = actions
        self._preview = preview
        self._neighbours = neighbours
        self._neighbour_from = neighbour_from
        self._rounds = rounds
        self._near: dict[str, list[tuple[str, float]]] = {}

    def decide(self) -> Asking:
        """Ask, and read what the model wants to read, until it gives operations.

        Raises:
            ModelFailed: If no usable answer came.
        """
        answer = yield from self._exchange.ask(self._problem)
        while answer.actions and self._may_read():
            self._rounds -= 1
            readings, notes = self._actions.run(answer.actions, self._reading_room(), self._exchange.answered())
            self._exchange.note(*notes)
            purpose = " ".join([_ASKED, *(f"({note}.)" for note in notes)])
            self._exchange.reply(answer, self._reading_frame(purpose), readings)
            answer = yield from self._exchange.ask(self._problem)
        if answer.actions:
            self._exchange.note(f"{len(answer.actions)} read actions were ignored: no reading was left")
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
            readings = self._actions.show(wanted, self._reading_room())
            if not readings:
                break
            offered.update(wanted)
            self._rounds -= 1
            refused = [verdict for verdict in verdicts if verdict.refused]
            problems = self._problems(refused, self._reading_room() - _cost(readings))
            purpose = _UNREAD + (f"\n\nRefused so far:\n{problems}" if problems else "")
            self._exchange.reply(answer, self._reading_frame(purpose), readings)
            try:
                answer = yield from self.decide()
            except _UNUSABLE as error:
                self._exchange.note(f"the operations were not reconsidered: {error.message}")
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
        if bad and self._exchange.requests_left:
            try:
                repaired = yield from self.repair(bad, answer)
            except _UNUSABLE as error:
                self._exchange.note(f"the refused operations were not corrected: {error.message}")
            else:
                fresh = [item for item in listed(repaired.operations or MemoryOperations()) if item not in good]
                again = {subject(item) for item in fresh}
                gone = [subject(verdict.operation) for verdict in bad]
                self._exchange.note(*(f"{name}: withdrawn after a refusal" for name in gone if name not in again))
                verdicts = self.judged(assembled([*good, *fresh]))
        return self.readable(verdicts)

    def repair(self, bad: Sequence[Verdict], answer: ReasoningAction) -> Asking:
        """Ask once for corrected operations, with reasons, hints and the files' present texts.

        Raises:
            ModelFailed: If no usable answer came.
        """
        problems = self._problems(bad, int(self._exchange.room * _PROBLEM_SHARE))
        empty = self._prompts.render("repair", {"problems": problems})
        uris = dict.fromkeys(uri for verdict in bad for uri in targets(verdict))
        files = self._actions.show(list(uris), self._exchange.room - count_tokens(empty))
        short = ReasoningAction(reasoning=answer.reasoning, memory_changes=answer.memory_changes)
        self._exchange.reply(
            short, lambda text: self._prompts.render("repair", {"problems": problems, "files": text}), files
        )
        self._rounds = 0
        return (yield from self._exchange.ask(_repair_problem))

    def stale(self, items: Sequence[Operation], results: Sequence[Sequence[OperationResult]]) -> list[Verdict]:
        """Operations that a commit refused because a file had changed, with the files they concern."""
        found = []
        for item, told in zip(items, results, strict=True):
            if any(result.conflict for result in told):
                unread = [uri for verdict in self.judged(assembled([item])) for uri in verdict.unread]
                found.append(Verdict(item, tuple(unread), tuple(told)))
        return found

    def judged(self, operations: MemoryOperations | None) -> list[Verdict]:
        """Try operations out, without what the system counts by itself."""
        cleaned, notes = without_counts(operations or MemoryOperations(), self._actions.view)
        self._exchange.note(*notes)
        if not len(cleaned):
            return []
        try:
            receipt = self._preview(cleaned)
        except InvalidInput as error:
            refusal = OperationResult("operations", "", Action.REJECTED, error.message, error.hint)
            return [Verdict(item, (), (refusal,)) for item in listed(cleaned)]
        return judge(cleaned, receipt, self._exchange.expected(), self._actions.view)

    def readable(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Those that touch no file unread; the others are reported."""
        unread = [verdict for verdict in verdicts if verdict.unread]
        self._exchange.note(
            *(f"{subject(item.operation)}: left out, {item.unread[0]} was not read whole" for item in unread)
        )
        return [verdict for verdict in verdicts if not verdict.unread]

    def linked(self, verdicts: Sequence[Verdict], reasoning: str) -> MemoryOperations:
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
        return self._rounds > 0 and self._exchange.requests_left > 0

    def _problem(self, answer: ReasoningAction) -> str | None:
        """What is wrong with an answer; a request to read is fine while reading is possible."""
        if answer.actions and self._may_read():
            return None
        if answer.operations is not None and len(answer.operations):
            return None
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
        known = self._exchange.expected()
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
            for text, pairs in zip(texts, self._neighbours(texts), strict=True):
                self._near[text] = list(pairs)

    def _strong(self, write: WriteOp) -> list[tuple[str, float]]:
        return [pair for pair in self._near.get(new_text(write), ()) if pair[1] >= self._neighbour_from]

    def _problems(self, verdicts: Sequence[Verdict], budget: int) -> str:
        each = max(0, budget) // max(1, len(verdicts))
        return "\n\n".join(text for item in verdicts if (text := cut_end(problem_text(item), each)))

    def _reading_room(self) -> int:
        frame = self._reading_frame(_UNREAD)("")
        return max(0, self._exchange.room - count_tokens(frame) - count_tokens(self._prompts.render("final")))

    def _reading_frame(self, purpose: str) -> Frame:
        closing = "" if self._rounds > 0 else f"\n\n{self._prompts.render('final')}"
        return lambda text: (
            self._prompts.render("readings", {"purpose": purpose, "readings": text or "(nothing)"}) + closing
        )


def _repair_problem(answer: ReasoningAction) -> str | None:
    if answer.actions and answer.operations is None:
        return "it asks to read, but no reading is left; it must give the corrected operations."
    return None


def _cost(readings: Sequence[Reading]) -> int:
    return sum(count_tokens(reading.text) for reading in readings)
