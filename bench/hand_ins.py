"""A strong model's hand-ins, played again: answers recorded from the briefs alone, session after session.

One conversation in LoCoMo's format is told to a fresh store over stdio. After each session its brief is taken and the
answer that was recorded for it is handed in. Where none is recorded yet, the brief is written beside the answers and
the play stops, so that a model or a person can answer it and go on: the store is then in the same state again.

    python -m bench.hand_ins --data locomo10.json --sample conv-42 --owner Joanna --answers DIR

``DIR/session-03-1.json`` holds the operations for the first brief of the third session; what was refused of them is
shown as ``DIR/session-03-2.txt`` and answered by ``DIR/session-03-2.json``.

Prints the size of each brief, how many memories that an answer changes were shown or named in it, and what is wrong in
the store afterwards: memories told twice, the owner outside of the profile, dates out of form, refusals. With
``--questions`` also how much of the conversation's questions the text of ``retrieve`` answers, with messages alone and
with memories beside them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from bench.client_driven import briefs
from bench.corpora.locomo import evidence, sessions
from bench.stdio_client import StdioClient
from bench.stores import serve
from memory_core.core.text.analysis import english_stop_words, fold
from memory_core.core.text.tokens import count_tokens

_MESSAGES = "\n# The conversation\n"
_TRAILER = "\n<!-- MEMORY_FIELDS\n"
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?(\.\.\d{4}(-\d\d(-\d\d)?)?)?")
_DATE_FIELDS = ("event_time", "due_date")
_WORD = re.compile(r"[^\W_]{3,}")
#: Share of the shorter text's words that the longer one holds too, from which two memories say the same.
_SAME = 0.8
_NEW = ("created", "queued")
_READY = '{"edit_operations"'
_BUDGET_TOKENS = 1000
_ISO = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?!\d)")
_STEM_CHARS = 5
_CATEGORIES = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class HandIn:
    """One brief, the answer to it, and what came of it.

    Attributes:
        name: Session and number.
        tokens: Of the brief; 0 for the answer to a refusal.
        frame_tokens: Of the brief without the conversation's messages.
        needed: URIs that were there before and that the answer changes.
        unnamed: Those of them that the brief does not show.
        refused: The lines of the receipt that carry a reason.
        ready: For each edit that a refusal gave, whether it would be carried out as it stands.
    """

    name: str
    tokens: int
    frame_tokens: int
    needed: tuple[str, ...]
    unnamed: tuple[str, ...]
    refused: tuple[Mapping[str, Any], ...]
    ready: tuple[bool, ...]


@dataclass(slots=True)
class Played:
    """What was played; ``waiting`` is the file of the brief that has no answer yet."""

    hand_ins: list[HandIn] = field(default_factory=list)
    operations: int = 0
    waiting: Path | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as its file has it."""

    uri: str
    body: str
    fields: Mapping[str, Any]


def play(client: StdioClient, conversations: Iterable[tuple[str, Sequence[dict[str, Any]]]], answers: Path) -> Played:
    """Tell each session, take its briefs and hand in what was recorded for them, until an answer is missing."""
    played = Played()
    for number, (session_id, messages) in enumerate(conversations, 1):
        client.call("commit_memory", {"messages": list(messages), "session_id": session_id})
        refused: str | None = None
        at = 0
        while (brief := refused or next(briefs(client, session_id), None)) is not None:
            at += 1
            name = f"session-{number:02}-{at}"
            recorded = answers / f"{name}.json"
            if not recorded.exists():
                played.waiting = answers / f"{name}.txt"
                played.waiting.write_text(brief, encoding="utf-8")
                return played
            operations = json.loads(recorded.read_text(encoding="utf-8"))
            hand_in, refusal = _hand_in(client, name, session_id, operations, None if refused else brief)
            played.hand_ins.append(hand_in)
            played.operations += sum(len(group) for group in operations.values() if isinstance(group, list))
            refused = refusal
    return played


def _hand_in(
    client: StdioClient, name: str, session_id: str, operations: Mapping[str, Any], brief: str | None
) -> tuple[HandIn, str | None]:
    """Hand in an answer; also the text of a refusal, where anything was refused."""
    arguments = {"operations": operations, "session_id": session_id}
    result = client.request("tools/call", {"name": "commit_memory", "arguments": arguments})
    lines = result.get("structuredContent", {}).get("results", [])
    refused = tuple(line for line in lines if line.get("reason"))
    needed = tuple(line["uri"] for line in lines if line["action"] not in _NEW and "/memories/" in line["uri"])
    shown = brief or ""
    unnamed = tuple(uri for uri in needed if brief is not None and not _named(uri, shown))
    frame = shown.partition(_MESSAGES)[0]
    hand_in = HandIn(name, count_tokens(shown), count_tokens(frame), needed, unnamed, refused, _ready(client, refused))
    return hand_in, str(result["content"][0]["text"]) if refused or result.get("isError") else None


def _ready(client: StdioClient, refused: Iterable[Mapping[str, Any]]) -> tuple[bool, ...]:
    """Try each edit that a refusal gives, without carrying it out."""
    tried = []
    for line in refused:
        _, found, rest = str(line.get("hint") or "").partition(_READY)
        if found:
            edit, _ = json.JSONDecoder().raw_decode(found + rest)
            arguments = {"name": "commit_memory", "arguments": {"operations": edit, "dry_run": True}}
            lines = client.request("tools/call", arguments).get("structuredContent", {}).get("results", [])
            tried.append([one["action"] for one in lines] == ["updated"])
    return tuple(tried)


def _named(uri: str, brief: str) -> bool:
    """Whether a brief shows a memory's URI, or its name in a list of its directory."""
    return uri in brief or uri.rpartition("/")[2].removesuffix(".md") in brief.partition(_MESSAGES)[0]


def memories(home: Path) -> list[Stored]:
    """All memories of a closed store, pages of directories left out."""
    found = []
    for path in sorted(home.glob("*/*/memories/**/*.md")):
        if not path.name.startswith("."):
            body, _, trailer = path.read_text(encoding="utf-8").partition(_TRAILER)
            fields = json.loads(trailer.rpartition("-->")[0]) if trailer else {}
            found.append(Stored(f"viking://{path.relative_to(home).as_posix()}", body.strip(), fields))
    return found


def twice(stored: Sequence[Stored]) -> Iterator[str]:
    """Pairs of memories that are one: entities of one name, or texts of which one says what the other says."""
    for one, other in combinations(stored, 2):
        names = [" ".join(_WORD.findall(fold(str(item.fields.get("entity_name", ""))))) for item in (one, other)]
        if all(names) and (names[0] == names[1] or set(names[0].split()) <= set(names[1].split())):
            yield f"{one.uri} and {other.uri}: one name"
        words = sorted((set(_WORD.findall(fold(item.body))) for item in (one, other)), key=len)
        if words[0] and len(words[0] & words[1]) >= _SAME * len(words[0]):
            yield f"{one.uri} and {other.uri}: one text"


def about_owner(stored: Sequence[Stored], owner: str) -> Iterator[str]:
    """Entities and facts whose name is the owner's."""
    for item in stored:
        name = str(item.fields.get("entity_name") or item.fields.get("topic") or "")
        if fold(name) in (fold(owner), "user", "the user"):
            yield item.uri


def out_of_form(stored: Sequence[Stored]) -> Iterator[str]:
    """Fields for dates that hold something else."""
    for item in stored:
        for name in _DATE_FIELDS:
            value = str(item.fields.get(name) or "")
            if value and not _DATE.fullmatch(value):
                yield f"{item.uri}: {name} {value!r}"


def report(played: Played, stored: Sequence[Stored], owner: str) -> str:
    """The figures, a line each."""
    briefs = [hand_in for hand_in in played.hand_ins if hand_in.tokens]
    needed = sum(len(hand_in.needed) for hand_in in briefs)
    unnamed = [f"{hand_in.name}: {uri}" for hand_in in briefs for uri in hand_in.unnamed]
    refused = [f"{hand_in.name}: {line['uri']}" for hand_in in played.hand_ins for line in hand_in.refused]
    lines = [f"{item.name}: brief {item.tokens} tokens, {item.frame_tokens} without its messages" for item in briefs]
    lines.append(f"{len(played.hand_ins)} hand-ins, {played.operations} operations, {len(stored)} memories")
    lines.append(f"memories that an answer needed: {needed}, of them shown or named {needed - len(unnamed)}")
    ready = [went for hand_in in played.hand_ins for went in hand_in.ready]
    lines.append(f"edits that refusals gave: {len(ready)}, of them go through as they stand {sum(ready)}")
    for title, wrong in (
        ("neither shown nor named", unnamed),
        ("refused", refused),
        ("told twice", list(twice(stored))),
        ("the owner outside of the profile", list(about_owner(stored, owner))),
        ("dates out of form", list(out_of_form(stored))),
    ):
        lines += [f"{title}: {len(wrong)}", *(f"  {item}" for item in wrong)]
    return "\n".join(lines)


def answered(client: StdioClient, sample: Mapping[str, Any], told: Mapping[str, str]) -> tuple[int, ...]:
    """How many questions there are; with how many the text of ``retrieve`` holds all turns, the answer's words, either.

    Args:
        client: The server of the store that is asked.
        sample: The conversation with its questions.
        told: The text of each turn that the store was told, by id; questions about others are left out.
    """
    counts: list[tuple[int, ...]] = [(0, 0, 0, 0)]
    for item in sample["qa"]:
        gold = list(evidence(item.get("evidence") or ()))
        if item["category"] not in _CATEGORIES or not gold or not told.keys() >= set(gold):
            continue
        asking = {"query": item["question"], "token_budget": _BUDGET_TOKENS}
        result = client.request("tools/call", {"name": "retrieve", "arguments": asking})
        text = "\n".join(part["text"] for part in result["content"])
        flat = " ".join(text.split())
        whole = all(" ".join(told[turn].split()) in flat for turn in gold)
        worded = _stems(str(item["answer"])) <= _stems(_ISO.sub(_spelt, text))
        counts.append((1, whole, worded, whole or worded))
    return tuple(map(sum, zip(*counts, strict=True)))


def _stems(text: str) -> set[str]:
    """The beginnings of the words that carry meaning."""
    return {word[:_STEM_CHARS] for word in _WORD.findall(fold(text)) if word not in english_stop_words()}


def _spelt(found: re.Match[str]) -> str:
    """A date in figures with its day, month and year beside it, as answers have them."""
    return f"{found[0]} {date.fromisoformat(found[0]):%-d %B %Y}"


def _ask_both(played: Path, sample: Mapping[str, Any], held: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> str:
    """Questions to the played store and to one that was told the messages only."""
    told = {message["id"]: message["content"] for _, messages in held for message in messages}
    lines = []
    with tempfile.TemporaryDirectory(prefix="runebook-messages-") as folder:
        with StdioClient(serve(Path(folder))) as client:
            for session_id, messages in held:
                client.call("commit_memory", {"messages": list(messages), "session_id": session_id})
        for name, home in (("messages only", Path(folder)), ("with memories", played)):
            with StdioClient(serve(home)) as client:
                asked, whole, worded, either = answered(client, sample, told)
            lines.append(
                f"{name}: of {asked} questions {either} are answered in the text: {whole} by all their turns, "
                f"{worded} by all words of the answer"
            )
    return "\n".join(lines)


def main() -> int:
    """Play the recorded answers; exit status 1 if an answer is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="conversations in LoCoMo's format")
    parser.add_argument("--sample", required=True, help="sample_id of the conversation")
    parser.add_argument("--owner", required=True, help="the speaker whose store it is")
    parser.add_argument("--answers", type=Path, required=True, help="folder of the recorded answers")
    parser.add_argument("--sessions", type=int, default=10, help="sessions that are played")
    parser.add_argument("--questions", action="store_true", help="ask the conversation's questions afterwards")
    arguments = parser.parse_args()
    samples = json.loads(arguments.data.read_text(encoding="utf-8"))
    sample = next((item for item in samples if item.get("sample_id") == arguments.sample), None)
    if sample is None:
        parser.error(f"no conversation is called {arguments.sample}")
    held = list(islice(sessions(sample["conversation"]), arguments.sessions))
    with tempfile.TemporaryDirectory(prefix="runebook-hand-ins-") as folder:
        with StdioClient(serve(Path(folder)), {"RUNEBOOK_OWNER_NAMES": arguments.owner}) as client:
            played = play(client, held, arguments.answers)
        print(report(played, memories(Path(folder)), arguments.owner))
        if played.waiting is not None:
            print(
                f"no answer yet: {played.waiting} was written; answer it in {played.waiting.with_suffix('.json').name}"
            )
            return 1
        if arguments.questions:
            print(_ask_both(Path(folder), sample, held))
    return 0


if __name__ == "__main__":
    sys.exit(main())
