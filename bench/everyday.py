"""Everyday turns over stdio: what people say to an assistant with a memory, and what must hold after each turn.

``everyday.json`` holds one story a user, each played against a fresh store without a model. A turn is what the user
said, the calls that a host's model makes of it, and what must hold. Every turn also fails if a text that an earlier
turn left behind no longer stands in the store's files: nothing may disappear that nobody asked to remove.

    python -m bench.everyday                    # --turns FILE plays another list

Keys of a turn beside ``calls``:

=============  ==========================================================================================
``restart``    the server is started anew before the turn
``says``       the answer of the last call holds each of these; of a search, its best three hits do
``top``        the best hit of the last search holds each of these
``lacks``      the answer of the last call, or any hit of the last search, holds none of these
``empty``      the last search finds nothing
``once``       memories hold this once
``kept``       the store's files hold each of these
``lost``       no file of the store, and no name of one, holds any of these
``stands``     like ``kept``, now and after every later turn
``goes``       what need no longer stand
``same_files`` the turn makes no file and removes none
=============  ==========================================================================================

A call is a tool with its arguments. ``pick`` and ``as`` name the address of the best hit that holds a text, which later
arguments write as ``$name``. ``forget`` is a preview and its confirmation, as the preview says it is to be confirmed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.stdio_client import StdioClient
from bench.stores import serve

TURNS = Path(__file__).with_suffix(".json")
_BEST = 3
_CONFIRM = re.compile(r"confirm\W{1,3}(\d+)")
_TRAILER = "<!-- MEMORY_FIELDS"


@dataclass(frozen=True, slots=True)
class Played:
    """How a turn went: why it failed, and which earlier texts it destroyed; both empty if it holds."""

    id: str
    kind: str
    failures: tuple[str, ...]
    destroyed: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether everything held that must."""
        return not self.failures and not self.destroyed


@dataclass(slots=True)
class _Answer:
    """What a call gave: its whole text, and of a search the texts of its hits with their addresses, best first."""

    text: str = ""
    hits: list[tuple[str, str]] = field(default_factory=list)
    searched: bool = False


def normal(text: str) -> str:
    """Lower case, single spaces: how texts are compared."""
    return " ".join(text.casefold().split())


class Story:
    """One user's turns against one store.

    The server runs in the store's own folder, which is no project.

    Args:
        home: The store's folder, empty.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._client: StdioClient | None = None
        self._standing: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def play(self, turn: Mapping[str, Any]) -> Played:
        """Make the calls of a turn, and look at what must hold."""
        if turn.get("restart"):
            self._stop()
        before = set(self._files())
        try:
            failures = self._failures(turn, self._calls(turn["calls"]), before)
        except _TurnFailed as error:
            failures = [str(error)]
        for text in turn.get("goes", ()):
            self._standing.pop(text, None)
        stored = self._stored()
        destroyed = [text for text in self._standing if normal(text) not in stored]
        for text in turn.get("stands", ()):
            if normal(text) in stored:
                self._standing[text] = turn["id"]
            elif text not in destroyed:
                failures.append(f"not stored: {text}")
        told = tuple(f"{text} (of {self._standing.pop(text)})" for text in destroyed)
        return Played(turn["id"], turn["kind"], tuple(failures), told)

    def _failures(self, turn: Mapping[str, Any], last: _Answer, before: set[str]) -> list[str]:
        stored = self._stored()
        best = last.hits[:_BEST] if last.searched else [("", last.text)]
        said = normal("\n".join(text for _, text in best))
        first = normal(last.hits[0][1]) if last.hits else ""
        whole = normal(last.text + "\n".join(text for _, text in last.hits))
        bodies = normal("\n".join(text.partition(_TRAILER)[0] for text in self._files().values()))
        checks = [
            *((normal(text) in said, f"not said: {text}") for text in turn.get("says", ())),
            *((normal(text) in first, f"not the best hit: {text}") for text in turn.get("top", ())),
            *((normal(text) not in whole, f"said: {text}") for text in turn.get("lacks", ())),
            *((bodies.count(normal(text)) == 1, f"not once: {text}") for text in turn.get("once", ())),
            *((normal(text) in stored, f"not kept: {text}") for text in turn.get("kept", ())),
            *((normal(text) not in stored, f"still stored: {text}") for text in turn.get("lost", ())),
            (not (turn.get("empty") and last.hits), f"found: {first[:60]}"),
            (not turn.get("same_files") or set(self._files()) == before, "files came or went"),
        ]
        return [reason for held, reason in checks if not held]

    def _calls(self, calls: Sequence[Mapping[str, Any]]) -> _Answer:
        last = _Answer()
        for call in calls:
            if "forget" in call:
                preview = self._call("commit_memory", {"forget": call["forget"]})
                number = _CONFIRM.search(preview.text)
                if number is None:
                    raise _TurnFailed(f"nothing to confirm: {preview.text[:100]}")
                last = self._call("commit_memory", {"forget": {**call["forget"], "confirm": int(number[1])}})
                continue
            last = self._call(call["tool"], self._filled(call["arguments"]))
            if "pick" in call:
                wanted = normal(call["pick"])
                uri = next((uri for uri, text in last.hits if wanted in normal(text)), None)
                if uri is None:
                    raise _TurnFailed(f"no hit holds {call['pick']}")
                self._names[f"${call['as']}"] = uri
        return last

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> _Answer:
        result = self._server().request("tools/call", {"name": tool, "arguments": dict(arguments)})
        facts = result.get("structuredContent") or {}
        text = "\n".join([*(part.get("text", "") for part in result["content"]), *_strings(facts)])
        if result.get("isError"):
            raise _TurnFailed(f"{tool}: {text[:160]}")
        if tool != "find":
            return _Answer(text)
        hits = sorted((hit for part in ("memories", "resources", "skills") for hit in facts[part]), key=_worse)
        return _Answer(text, [(hit["uri"], f"{hit['abstract']}\n{self._read(hit['uri'])}") for hit in hits], True)

    def _read(self, uri: str) -> str:
        result = self._server().request("tools/call", {"name": "read", "arguments": {"uri": uri}})
        return str((result.get("structuredContent") or {}).get("content", ""))

    def _filled(self, value: Any) -> Any:
        """Arguments with the names in them replaced."""
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        return self._names.get(value, value) if isinstance(value, str) else value

    def _files(self) -> dict[str, str]:
        """The store's memories, logs and conversations by path, as they stand on disk; no generated pages."""
        found = {}
        for space in ("user", "agent", "session"):
            for path in sorted((self._home / space).rglob("*")):
                if path.is_file() and not path.name.startswith(".") and path.suffix in (".md", ".jsonl"):
                    found[path.relative_to(self._home).as_posix()] = path.read_text(encoding="utf-8")
        return found

    def _stored(self) -> str:
        return normal("\n".join(f"{path}\n{text}" for path, text in self._files().items()))

    def _server(self) -> StdioClient:
        if self._client is None:
            self._client = StdioClient(serve(self._home), folder=self._home)
        return self._client

    def _stop(self) -> None:
        if self._client is not None:
            self._client.__exit__(None, None, None)
            self._client = None


class _TurnFailed(Exception):
    """A call of the turn failed, or the next one cannot be made."""


def _worse(hit: Mapping[str, Any]) -> float:
    return -float(hit["score"])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def play(stories: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Played]:
    """Play each story against a store of its own."""
    played: list[Played] = []
    for turns in stories.values():
        with tempfile.TemporaryDirectory() as home, Story(Path(home)) as story:
            played += [story.play(turn) for turn in turns]
    return played


def report(played: Sequence[Played]) -> str:
    """A line a turn that failed, then how many of each kind hold."""
    lines = []
    for turn in played:
        if not turn.holds:
            lines.append(f"{turn.id:12} {turn.kind:14} {'; '.join(turn.failures)}".rstrip())
            lines += [f"{'':12} destroyed: {text}" for text in turn.destroyed]
    kinds = Counter(turn.kind for turn in played)
    held = Counter(turn.kind for turn in played if turn.holds)
    lines += ["", *(f"{kind:14} {held[kind]:3} of {count}" for kind, count in kinds.items())]
    destroyed = sum(len(turn.destroyed) for turn in played)
    return "\n".join([*lines, "", f"{held.total()} of {len(played)} turns hold; texts destroyed: {destroyed}"])


def main(argv: Sequence[str] | None = None) -> int:
    """Play a list of turns and print which hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=Path, default=TURNS, help="stories in the form of everyday.json")
    arguments = parser.parse_args(argv)
    played = play(json.loads(arguments.turns.read_text(encoding="utf-8")))
    sys.stdout.write(report(played) + "\n")
    return 0 if all(turn.holds for turn in played) else 1


if __name__ == "__main__":
    raise SystemExit(main())
