"""The dialogue with the model in one extraction: its turns, the requests it may cost, and what it has before it.

Promises that no request is larger than the prompt's budget and that there are never more requests than allowed.
A file counts as seen only while its whole text is in the prompt: older readings leave first when room gets short.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memory_core.core.errors import AnswerCut, AnswerUnusable
from memory_core.core.extract.prompts import cut_end
from memory_core.core.extract.store_view import Reading
from memory_core.core.llm.client import Completion, LLMRequest, Turn
from memory_core.core.llm.structured import JSONAdapter
from memory_core.core.memory.operations import ReasoningAction, compact_schema
from memory_core.core.progress import tell
from memory_core.core.text.tokens import count_tokens

#: Says what is wrong with an answer, or None.
Check = Callable[[ReasoningAction], str | None]
#: The words of a turn around its readings.
Frame = Callable[[str], str]

#: Share of the room after the first turn that the model's own last answer may take.
_ANSWER_SHARE = 0.35
_CHANGES_KEPT = 12
_TURN_TOKENS = 8
#: Of what is said about an answer that could not be used.
_ANSWER_NOTE_TOKENS = 60


@dataclass(frozen=True, slots=True)
class _Round:
    answer: str
    frame: Frame
    readings: tuple[Reading, ...]

    def turns(self) -> tuple[Turn, Turn]:
        text = "\n\n".join(reading.text for reading in self.readings)
        return Turn("assistant", self.answer), Turn("user", self.frame(text))

    def cost(self) -> int:
        return sum(count_tokens(turn.text) + _TURN_TOKENS for turn in self.turns())


@dataclass(slots=True)
class Dialogue:
    """One conversation with the model.

    Attributes:
        adapter: Writes requests, and reads answers.
        system: The static part.
        first_turn: The first turn.
        seen: SHA-256 of each file that the first turn shows whole, by URI.
        prompt_tokens: Most tokens of a request.
        max_tokens: Most tokens of an answer.
        requests_left: Requests that may still be made.
        retry: The words that ask again, with what was wrong with an answer.
        asked: Requests that were made.
        dropped: What was left out of answers, each line once.
    """

    adapter: JSONAdapter[ReasoningAction]
    system: str
    first_turn: str
    seen: Mapping[str, str]
    prompt_tokens: int
    max_tokens: int
    requests_left: int
    retry: Callable[[str], str]
    asked: int = 0
    dropped: list[str] = field(default_factory=list)
    _rounds: list[_Round] = field(default_factory=list)
    _may_retry: bool = True

    @property
    def room(self) -> int:
        """Tokens that a further round may take for its readings."""
        return max(0, int(self._after_first_turn() * (1 - _ANSWER_SHARE)) - 2 * _TURN_TOKENS)

    def seen_whole(self) -> dict[str, str]:
        """SHA-256 of each file that is whole in the present prompt, by URI."""
        shown = [reading for past in self._rounds for reading in past.readings]
        found = {reading.uri: reading.sha256 for reading in shown if reading.sha256 is not None}
        return {**self.seen, **found}

    def answered(self) -> frozenset[str]:
        """Keys of the actions whose readings are in the present prompt."""
        return frozenset(reading.key for past in self._rounds for reading in past.readings if reading.key)

    def note(self, *lines: str) -> None:
        """Report that something was left out."""
        self.dropped += [line for line in lines if line and line not in self.dropped]

    def reply(self, answer: ReasoningAction, frame: Frame, readings: Sequence[Reading]) -> None:
        """Add the model's answer and our turn after it; older readings leave where room is short."""
        room = self._after_first_turn()
        new = _Round(answer_text(answer, int(room * _ANSWER_SHARE)), frame, tuple(readings))
        while new.readings and new.cost() > room:
            self.note("a text was left out of a prompt: no room")
            new = replace(new, readings=new.readings[:-1])
        self._rounds.append(new)
        while sum(past.cost() for past in self._rounds) > room and len(self._rounds) > 1:
            oldest = self._rounds[0]
            if oldest.readings:
                self._rounds[0] = replace(oldest, readings=oldest.readings[1:])
            else:
                del self._rounds[0]

    def ask(self, check: Check) -> Generator[LLMRequest, Completion, ReasoningAction]:
        """Make one request; an answer that cannot be used is asked for once more, if that is allowed.

        Raises:
            ModelFailed: If there is no usable answer, or one was thrown in.
        """
        turns = self._turns()
        while True:
            try:
                return (yield from self._once(turns, check))
            except (AnswerCut, AnswerUnusable) as error:
                if not self._may_retry or self.requests_left < 1:
                    raise
                self._may_retry = False
                note = self.retry(cut_end(error.message, _ANSWER_NOTE_TOKENS))
                turns = [*turns[:-1], Turn("user", f"{turns[-1].text}\n\n{note}")]

    def _once(self, turns: Sequence[Turn], check: Check) -> Generator[LLMRequest, Completion, ReasoningAction]:
        request = self.adapter.format(self.system, turns, self.max_tokens)
        self.requests_left -= 1
        self.asked += 1
        tell(f"waiting for the model, request {self.asked} of at most {self.asked + self.requests_left}")
        parsed = self.adapter.parse((yield request))
        self.note(*parsed.dropped)
        problem = check(parsed.value)
        if problem is not None:
            raise AnswerUnusable(problem, hint="Ask again, or take a model that follows the schema better.")
        return parsed.value

    def _turns(self) -> list[Turn]:
        return [Turn("user", self.first_turn), *(turn for past in self._rounds for turn in past.turns())]

    def _after_first_turn(self) -> int:
        fixed = fixed_tokens(self.adapter, self.system) + count_tokens(self.first_turn)
        return max(0, self.prompt_tokens - fixed - _ANSWER_NOTE_TOKENS - count_tokens(self.retry("")))


def fixed_tokens(adapter: JSONAdapter[ReasoningAction], system: str) -> int:
    """Tokens of what every request holds: the static part, and the schema of the answer.

    Clients send the schema in different forms, beside the prompt or as an outline in it; the plain compact one
    stands for all of them.
    """
    schema = compact_schema(adapter.schema, descriptions=False)
    return count_tokens(system) + count_tokens(json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


def answer_text(answer: ReasoningAction, budget_tokens: int) -> str:
    """The model's own answer as it is shown to it again: whole if it fits, else without what takes most room."""
    short = ReasoningAction(
        reasoning=cut_end(answer.reasoning, max(8, budget_tokens // 4)),
        memory_changes=answer.memory_changes[:_CHANGES_KEPT],
        actions=answer.actions[:_CHANGES_KEPT],
    )
    least = ReasoningAction(reasoning=cut_end(answer.reasoning, max(8, budget_tokens // 2)))
    for form in (answer, short, least):
        text = form.model_dump_json(exclude_defaults=True, exclude_none=True)
        if count_tokens(text) <= budget_tokens:
            return text
    return "{}"
