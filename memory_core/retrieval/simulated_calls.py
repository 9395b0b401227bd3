"""Recall as tool calls that were never made: the model finds the results as if it had asked for them.

The messages stand after the user's message, exactly as the two APIs want them: one assistant message with all calls
in parallel, then their results. The calls are this server's own tools, so that a model that wants more knows how to
ask. Ids are made of the content: the same recall gives the same messages, which keeps a prompt cache warm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memory_core.retrieval.formats import Blocks, Format
from memory_core.retrieval.packing import Piece
from memory_core.scoring.tokens import count_tokens

Provider = Literal["anthropic", "openai"]

_QUERY_CHARS = 200
#: What a call and its result cost beside arguments and content: two ids, two names, two roles.
_CALL_TOKENS = 64
_PREFIX: dict[Provider, str] = {"anthropic": "toolu_", "openai": "call_"}


@dataclass(frozen=True, slots=True)
class _Call:
    tool: str
    arguments: dict[str, Any]
    content: str

    def call_id(self, provider: Provider) -> str:
        """Deterministic; letters, digits and ``_`` alone."""
        known = json.dumps([self.tool, self.arguments, self.content], sort_keys=True)
        return _PREFIX[provider] + hashlib.sha256(known.encode("ascii")).hexdigest()[:24]


class SimulatedCalls(Format):
    """Calls of ``read`` (the profile), ``ls`` (the directory) and ``retrieve`` (all else).

    Args:
        provider: Whose messages.
        query: What the call of ``retrieve`` asks for.
    """

    def __init__(self, provider: Provider, query: str) -> None:
        self._provider = provider
        self._arguments = {"query": " ".join(query.split())[:_QUERY_CHARS]} if query.strip() else {}
        self._blocks = Blocks()

    def item(self, piece: Piece) -> str:
        """As the tool would say it."""
        return piece.text if piece.kind in ("profile", "directory") else self._blocks.item(piece)

    def frames(self, piece: Piece) -> Sequence[str]:
        """The call, and within ``retrieve`` the tags of ``Blocks``."""
        tool = {"profile": "read", "directory": "ls"}.get(piece.kind, "retrieve")
        return (f"call {tool} {piece.uri}",) if tool == "read" else ("call " + tool, *self._tags(piece))

    def opening(self, frame: str) -> str:
        """A tag; a call shows in the messages only."""
        return "" if frame.startswith("call ") else self._blocks.opening(frame)

    def closing(self, frame: str) -> str:
        """An end tag."""
        return "" if frame.startswith("call ") else self._blocks.closing(frame)

    def frame_tokens(self, name: str) -> int:
        """What a tag, or a call with its envelope, costs."""
        if not name.startswith("call "):
            return super().frame_tokens(name)
        tool, _, uri = name.removeprefix("call ").partition(" ")
        return _call_tokens(_Call(tool, self._arguments_of(tool, uri), ""))

    def tokens(self, pieces: Sequence[Piece]) -> int:
        """What calls and results cost."""
        return sum(_call_tokens(call) + count_tokens(call.content) for call in self._calls(pieces))

    def text(self, pieces: Sequence[Piece]) -> str:
        """The results, one below the other."""
        return "\n".join(call.content for call in self._calls(pieces))

    def messages(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """The assistant's message with the calls, and what answers it; empty for no pieces."""
        calls = [(call.call_id(self._provider), call) for call in self._calls(pieces)]
        if not calls:
            return []
        return _anthropic(calls) if self._provider == "anthropic" else _openai(calls)

    def _calls(self, pieces: Sequence[Piece]) -> list[_Call]:
        found: dict[str, list[Piece]] = {}
        for piece in pieces:
            found.setdefault(self.frames(piece)[0], []).append(piece)
        calls: list[_Call] = []
        for frame, inside in found.items():
            tool, _, uri = frame.removeprefix("call ").partition(" ")
            plain = tool != "retrieve"
            content = "\n".join(piece.text for piece in inside) if plain else self._blocks.text(inside)
            calls.append(_Call(tool, self._arguments_of(tool, uri), content))
        return calls

    def _arguments_of(self, tool: str, uri: str) -> dict[str, Any]:
        return {"read": {"uri": uri}, "ls": {"uri": "viking://"}}.get(tool, self._arguments)

    def _tags(self, piece: Piece) -> Sequence[str]:
        return () if piece.kind == "directory" else self._blocks.frames(piece)


def _call_tokens(call: _Call) -> int:
    return count_tokens(json.dumps(call.arguments, ensure_ascii=False)) + _CALL_TOKENS


def _anthropic(calls: Sequence[tuple[str, _Call]]) -> list[dict[str, Any]]:
    asked = [{"type": "tool_use", "id": key, "name": call.tool, "input": call.arguments} for key, call in calls]
    answered = [{"type": "tool_result", "tool_use_id": key, "content": call.content} for key, call in calls]
    return [{"role": "assistant", "content": asked}, {"role": "user", "content": answered}]


def _openai(calls: Sequence[tuple[str, _Call]]) -> list[dict[str, Any]]:
    asked = [
        {
            "id": key,
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for key, call in calls
    ]
    answered = [{"role": "tool", "tool_call_id": key, "content": call.content} for key, call in calls]
    return [{"role": "assistant", "content": None, "tool_calls": asked}, *answered]
