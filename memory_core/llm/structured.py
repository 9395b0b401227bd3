"""JSONAdapter: from a pydantic model to a request, and from a model's answer to the pydantic model.

Three steps. ``format`` joins the static text, the turns and the schema; a client asks in the strongest form its
endpoint takes (see ``strict_schema`` for what goes over the wire); ``parse`` reads the answer back. Between them
they promise that an answer which was refused, cut or unreadable becomes an error and never a part of an answer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from memory_core.errors import AnswerCut, AnswerUnusable, ModelRefused
from memory_core.llm.client import Completion, LLMRequest, StopReason, Turn
from memory_core.llm.coercion import Unfit, build, known_keys
from memory_core.llm.json_text import find_answer, quoted

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """An answer.

    Attributes:
        value: What the model said, with every part that could be read.
        dropped: A line for each part that could not, with its path and the reason.
    """

    value: M
    dropped: tuple[str, ...]


@functools.cache
def _schema_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema of a model; costs some 30 ms to make, and every opened store asks for it."""
    return model.model_json_schema()


class JSONAdapter(Generic[M]):
    """Asks for, and reads, answers of one pydantic model.

    Args:
        model: The shape of an answer. Not recursive.
        name: A short name of the schema, letters, digits and ``_``; default the model's.
        choices: Values that text members of a name may take, such as the memory types that there are. They guide
            the model; an answer with another value is still read.
        purpose: What the answers are for, as metrics count them.
    """

    def __init__(
        self,
        model: type[M],
        name: str | None = None,
        choices: Mapping[str, Sequence[str]] | None = None,
        purpose: str = "extraction",
    ) -> None:
        self.model = model
        self.name = name or model.__name__
        self.schema: Mapping[str, Any] = _with_choices(_schema_of(model), choices or {})
        self._keys = known_keys(model)
        self._purpose = purpose

    def format(self, system: str, turns: Sequence[Turn], max_tokens: int) -> LLMRequest:
        """A request for one answer.

        Args:
            system: The static part, the same for every conversation. A client that cannot enforce the schema adds
                its outline to this part, which stays the same.
            turns: The dynamic part, ending with a user's turn.
            max_tokens: Most tokens of the answer.
        """
        return LLMRequest(system, tuple(turns), self.schema, self.name, max_tokens, purpose=self._purpose)

    def parse(self, answer: Completion | str) -> Parsed[M]:
        """Read an answer.

        Args:
            answer: A completion, or the text of one that ended by itself.

        Raises:
            AnswerCut: If the answer ended at the token limit, whether or not the provider says so.
            ModelRefused: If the model declined.
            AnswerUnusable: If there is no JSON object of this shape in it.
        """
        completion = Completion(answer) if isinstance(answer, str) else answer
        return parse(completion.text, self.model, completion.stop, self._keys)


def parse(
    text: str, model: type[M], stop: StopReason = StopReason.COMPLETE, keys: frozenset[str] | None = None
) -> Parsed[M]:
    """Read the text of an answer; see ``JSONAdapter.parse``. ``keys`` are ``known_keys(model)``, where known."""
    if stop is StopReason.LENGTH:
        raise AnswerCut(
            f"the answer ended at the token limit after {len(text):,} characters; nothing of it was used.",
            hint="Raise llm.max_tokens, or send a shorter conversation.",
        )
    if stop is StopReason.REFUSAL:
        raise ModelRefused(
            f"the model declined to answer: {quoted(text)!r}." if text.strip() else "the model declined to answer.",
            hint="Read the conversation for what its provider's rules forbid, or set another llm.model.",
        )
    found = _sound(find_answer(text, known_keys(model) if keys is None else keys))
    try:
        value, dropped = build(model, found)
    except Unfit as error:
        raise AnswerUnusable(
            f"the answer has a wrong shape: {quoted(str(error))}.",
            hint=f"Check that llm.model follows instructions; it wrote: {quoted(text)!r}",
        ) from None
    return Parsed(value, tuple(dropped))


def _sound(value: Any) -> Any:
    """The answer with half surrogate pairs written as escapes: no file, ledger or receipt can hold them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def _with_choices(node: Any, choices: Mapping[str, Sequence[str]]) -> Any:
    """The schema with the text members of these names limited to these values."""
    if isinstance(node, list):
        return [_with_choices(item, choices) for item in node]
    if not isinstance(node, Mapping):
        return node
    narrowed = {key: _with_choices(value, choices) for key, value in node.items()}
    for name, values in choices.items():
        member = narrowed.get("properties", {}).get(name)
        if values and isinstance(member, dict) and member.get("type") == "string":
            narrowed["properties"] = {**narrowed["properties"], name: {**member, "enum": list(values)}}
    return narrowed
