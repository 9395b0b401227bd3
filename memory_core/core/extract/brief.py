"""The brief: the whole task in one text, for a client's own model that has the tools and needs no server model.

Holds the rules, the memory types, how to hand operations in, and what is stored near to the conversation; the JSON
schema of the operations is that of the tool. Types come before anything that was written by others, so that a program
which looks for them finds ours. Fits a token budget from 2,600 upwards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_core.core.extract.prefetch import Prefetcher
from memory_core.core.extract.prompts import (
    Conversation,
    PromptLibrary,
    TypeGuide,
    cut_end,
    hint_lines,
    language_line,
    transcript,
)
from memory_core.core.extract.store_view import StoreView
from memory_core.core.frozen import frozen
from memory_core.core.memory.message import Message, one_line
from memory_core.core.store.brief_notes import ID_CHARS
from memory_core.core.text.tokens import count_tokens

_TYPES_SHARE = 0.65
#: Where the messages are shown too, types are told in fewer words.
_TYPES_SHARE_BESIDE_MESSAGES = 0.5
_CONVERSATION_SHARE = 0.7
_HINT_TOKENS = 150
_SPARE_TOKENS = 24
_HEADING = "# The conversation"
_CALL, _NOTHING = '"reasoning": "…", "write_operations": […], …', '"reasoning": "why"'


@dataclass(frozen=True, slots=True)
class Brief:
    """A brief.

    Attributes:
        text: What the client's model is given.
        seen: SHA-256 of the text of each file that it shows whole, by URI.
    """

    text: str
    seen: Mapping[str, str]


@frozen
class BriefWriter:
    """Writes briefs for one user and agent.

    Attributes:
        prompts: The templates.
        guide: Describes the memory types.
        budget_tokens: Tokens of a brief; below about 2,600 it holds the bare task and is as short as it can be.
    """

    prompts: PromptLibrary
    guide: TypeGuide
    budget_tokens: int

    @property
    def conversation_tokens(self) -> int:
        """Tokens of messages that a brief can show: the budget for ``windows``."""
        values = self._task(_where("x" * 40), _handing("x" * 40, "x" * ID_CHARS), include_messages=True)
        return max(0, int((self._room(values) - _HINT_TOKENS) * _CONVERSATION_SHARE) - count_tokens(_HEADING))

    def write(
        self,
        conversation: Conversation,
        view: StoreView,
        *,
        brief_id: str | None = None,
        include_messages: bool = False,
    ) -> Brief:
        """A brief about a stored conversation.

        Args:
            conversation: What to extract from; its messages are the query for what is stored.
            view: The store as the conversation's project sees it.
            brief_id: What the answer is to name it by; None where no note of it is kept.
            include_messages: Show the messages too, as many of the last as fit; else the client has them.
        """
        session = one_line(conversation.session_id)
        values = self._task(_where(session), _handing(conversation.session_id, brief_id), include_messages)
        values["language"] = language_line(conversation.language)
        values["hints"] = hint_lines(conversation.hints, _HINT_TOKENS)
        if include_messages:
            values["conversation"] = _messages(conversation, self.conversation_tokens)
        return self._filled(values, conversation.messages, view)

    def write_unstored(self, view: StoreView, focus: str | None = None) -> Brief:
        """A brief about the conversation that the client has before it and has not stored.

        Args:
            view: The store as the client's project sees it.
            focus: What to look for; also the query for what is stored.
        """
        values = self._task("the conversation that you have before you", _handing(None, None), include_messages=False)
        values["language"] = language_line("")
        wanted = one_line(focus or "")
        values["hints"] = cut_end(f"Look above all for: {wanted}", _HINT_TOKENS) if wanted else ""
        return self._filled(values, (Message("user", wanted),) if wanted else (), view)

    def _task(self, where: str, handing: dict[str, str], include_messages: bool) -> dict[str, str]:
        """What does not depend on the conversation."""
        values = {**handing, "where": where, "rules": self.prompts.render("rules")}
        share = _TYPES_SHARE_BESIDE_MESSAGES if include_messages else _TYPES_SHARE
        return {**values, "types": self.guide.text(int(self._room(values) * share))}

    def _filled(self, values: dict[str, str], messages: Sequence[Message], view: StoreView) -> Brief:
        owner = _owner_line(view.owner_names())
        found = Prefetcher(self.guide, view).gather(messages, self._room(values) - count_tokens(owner))
        return Brief(self.prompts.render("brief", {**values, "context": f"{owner}{found.text}"}), found.seen)

    def _room(self, values: dict[str, str]) -> int:
        return max(0, self.budget_tokens - count_tokens(self.prompts.render("brief", values)) - _SPARE_TOKENS)


def _where(session: str) -> str:
    return f"the conversation of session `{session}`"


def _owner_line(names: Sequence[str]) -> str:
    """Who the owner is, for talk between several people; empty where nobody said."""
    if not names:
        return ""
    also = f" (also {', '.join(map(one_line, names[1:]))})" if names[1:] else ""
    return f"The owner of this memory is {one_line(names[0])}{also}: what they say of themselves is about the user.\n"


def _handing(session: str | None, brief_id: str | None) -> dict[str, str]:
    """How to hand in, and what to do when there is nothing."""
    if session is None:
        return {"call": f"commit_memory(operations={{{_CALL}}})", "nothing": "say so; there is nothing to hand in"}
    named = f"session_id={json.dumps(session, ensure_ascii=False)}"
    first = "" if brief_id is None else f'"brief_id": "{brief_id}", '
    call, nothing = (f"commit_memory(operations={{{first}{inside}}}, {named})" for inside in (_CALL, _NOTHING))
    return {"call": call, "nothing": f"hand in `{nothing}`, so that it is not offered again"}


def _messages(conversation: Conversation, budget: int) -> str:
    text, left_out = transcript(conversation.messages, budget)
    note = f"(the first {left_out} messages are left out; read them in the session)\n" if left_out else ""
    return f"{_HEADING}\n{note}{text}\n" if text else ""
