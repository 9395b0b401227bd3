"""The update loop with the client as the model: conversations in LoCoMo's format become memories over stdio.

A scripted client stands in for a language model. It knows nothing but what the server says: it commits each
session, takes the prompt ``extract_memories``, derives operations from the messages, types and rules in it, checks
them against the schema of the tool, hands them in, and goes on until nothing waits. Then it asks a question
about each memory it made, through ``find``.

    python -m bench.client_driven --data locomo10.json --sessions 3

Prints how many sessions left the queue and how many memories are found among the first five hits. The client is
no judge of what is worth remembering; this measures the road, not the driver.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema

from bench.corpora.locomo import sessions
from bench.stdio_client import StdioClient
from bench.stores import serve

_TYPE = re.compile(r"^- (\w+)(?: \(viking://[^)]+\))?: fields ([^.]+)\.", re.MULTILINE)
_FIELD = re.compile(r"(\w+) \[(\w+)\]")
_MESSAGE = re.compile(r"^\[\d+\] (?:\[(\d{4}-\d{2}-\d{2} )?\d\d:\d\d\] )?([^:\n]+): (.+(?:\n  .+)*)", re.MULTILINE)
_SESSION = re.compile(r'session_id="([^"]+)"')
_WORD = re.compile(r"[^\W\d_]{4,}")
_LEAST_WORDS = 12
_NAME_WORDS = 8
_QUESTION_WORDS = 6
_FOUND_AMONG = 5


@dataclass(frozen=True, slots=True)
class Brief:
    """What a client can read out of a brief: types with their fields, session, messages."""

    types: dict[str, dict[str, str]]
    session_id: str
    messages: tuple[tuple[str, str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Brief:
        """Read a brief; ``messages`` are (date, speaker, text)."""
        session = _SESSION.search(text)
        if session is None:
            raise SystemExit(f"this is no brief:\n{text[:2000]}")
        types = {name: dict(_FIELD.findall(fields)) for name, fields in _TYPE.findall(text)}
        messages = []
        day = ""
        for dated, who, said in _MESSAGE.findall(text):
            day = dated.strip() or day
            messages.append((day, who, " ".join(said.split())))
        return cls(types, session[1], tuple(messages))


@dataclass(slots=True)
class Result:
    """What came of one store."""

    sessions: int = 0
    waiting: int = 0
    memories: int = 0
    found: int = 0
    hand_ins: int = 0


def derive(brief: Brief) -> dict[str, Any]:
    """Operations for what was told at some length: an event where it is dated, else a fact."""
    kind = "events" if "event_time" in brief.types.get("events", {}) else next(iter(brief.types))
    writes = []
    for day, who, said in brief.messages:
        if len(said.split()) < _LEAST_WORDS:
            continue
        name = f"{who}: {' '.join(said.split()[:_NAME_WORDS])}"
        values = {"event_name": name, "event_time": day, "content": f"{who} said on {day}: {said}"}
        fields = {field: values[field] for field in brief.types[kind] if field in values}
        writes.append({"memory_data": {"memory_type": kind, "fields": fields}})
    reasoning = f"{len(writes)} messages tell something" if writes else "only small talk"
    return {"reasoning": reasoning, "write_operations": writes}


def question(content: str, rarity: Counter[str]) -> str:
    """The rarest words of a memory, in its order, as a search."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(content)))
    rarest = set(sorted(words, key=lambda word: (rarity[word], word))[:_QUESTION_WORDS])
    return " ".join(word for word in words if word in rarest)


def play(client: StdioClient, conversations: Iterable[tuple[str, Sequence[dict[str, Any]]]]) -> Result:
    """Commit, extract by brief and find again, all through one connected client."""
    result = Result()
    texts: dict[str, str] = {}
    tools = client.ask("tools/list", {})["result"]["tools"]
    schema = next(tool["inputSchema"] for tool in tools if tool["name"] == "commit_memory")
    for session_id, messages in conversations:
        client.call("commit_memory", {"messages": list(messages), "session_id": session_id})
        result.sessions += 1
        for text in briefs(client, session_id):
            brief = Brief.parse(text)
            operations = derive(brief)
            call = {"operations": operations, "session_id": brief.session_id}
            jsonschema.validate(call, schema)
            receipt = client.call("commit_memory", call)
            result.hand_ins += 1
            contents = [item["memory_data"]["fields"]["content"] for item in operations["write_operations"]]
            pairs = zip(receipt["results"], contents, strict=False)
            texts.update((line["uri"], content) for line, content in pairs if line["action"] == "created")
        result.waiting += sum(1 for _ in islice(briefs(client, session_id), 1))
    result.memories = len(texts)
    rarity = Counter(word for text in texts.values() for word in {item.lower() for item in _WORD.findall(text)})
    for uri, text in texts.items():
        found = client.call("find", {"query": question(text, rarity), "limit": _FOUND_AMONG, "filter": _MEMORIES})
        result.found += any(hit["uri"] == uri for hit in found["memories"])
    return result


_MEMORIES = {"memory_type": {"ne": "message"}}


def briefs(client: StdioClient, session_id: str) -> Iterator[str]:
    """The text of each brief of a session, until nothing of it waits."""
    while True:
        answer = client.ask("prompts/get", {"name": "extract_memories", "arguments": {"session_id": session_id}})
        if "error" in answer:
            return
        yield str(answer["result"]["messages"][0]["content"]["text"])


def main() -> int:
    """Play every conversation of a file; exit status 1 if a session still waits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="conversations in LoCoMo's format")
    parser.add_argument("--sessions", type=int, default=3, help="sessions of each conversation")
    arguments = parser.parse_args()
    waiting = 0
    for sample in json.loads(arguments.data.read_text(encoding="utf-8")):
        folder = tempfile.TemporaryDirectory(prefix="runebook-client-")
        with folder as home, StdioClient(serve(Path(home))) as client:
            result = play(client, islice(sessions(sample["conversation"]), arguments.sessions))
        waiting += result.waiting
        print(
            f"{sample.get('sample_id', '?')}: {result.sessions} sessions in {result.hand_ins} hand-ins, "
            f"{result.waiting} still wait; {result.found} of {result.memories} memories found",
            flush=True,
        )
    return int(waiting > 0)


if __name__ == "__main__":
    sys.exit(main())
