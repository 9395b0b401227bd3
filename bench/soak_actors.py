"""Who works on the store during a soak: writers, a conversation and readers; the person is in ``soak_person``.

Each actor is a thread with a random source and a server process of its own. A request whose
server died is sent again, with the same request id, until it is answered; only then it counts as acknowledged.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.soak_clients import Hang, Refused, Roster, Server, ServerGone, program, run_once
from bench.soak_journal import Added, Committed, Journal, Said, Wrong
from bench.soak_texts import THEMES, marker, shelf

#: A refusal may be a full lock queue or an index under repair; the same request must be taken in the end.
_PATIENCE_SECONDS = 120.0
_RETRY_SECONDS = 0.3
COUNTER = "viking://agent/default/memories/tools/soak_counter.md"
SHARED = "viking://user/default/memories/facts/shared list.md"
#: What every entry of the shared list is put in front of, by machine and by hand.
SHARED_END = "(end of list 列表完)"

Connect = Callable[[Roster, str, Path, Sequence[str]], Server]


class Known(NamedTuple):
    """A file as it was acknowledged, for readers to look for."""

    uri: str
    version: int
    word: str
    body: str


@dataclass(slots=True)
class Scene:
    """What all actors of a soak share."""

    home: Path
    seed: int
    journal: Journal
    roster: Roster
    options: Sequence[str]
    over: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    recent: deque[Known] = field(default_factory=lambda: deque(maxlen=200))
    handed_over: deque[str] = field(default_factory=deque)
    versions: Counter[str] = field(default_factory=Counter)

    @property
    def answers(self) -> int:
        """Requests of actors that were answered so far."""
        return self.counts["commits"] + self.counts["reads"]

    def wrong(self, what: str) -> None:
        """Note what must not be."""
        self.journal.write(Wrong(what))
        self.counts["wrong"] += 1
        print(f"WRONG: {what}", flush=True)


class Actor:
    """One thread of the soak and its server."""

    def __init__(self, scene: Scene, name: str, number: int, connect: Connect) -> None:
        self.scene = scene
        self.name = name
        self.number = number
        self.random = Random(f"{scene.seed}/{name}")
        self._connect = connect
        self._server: Server | None = None
        self._asked = 0
        self.thread = threading.Thread(target=self._run, name=name)

    def step(self) -> None:
        """One action."""
        raise NotImplementedError

    def request_id(self) -> str:
        """One that no other request of this soak has."""
        self._asked += 1
        return f"soak-{self.scene.seed}-{self.name}-{self._asked}"

    def ask(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Call a tool until it answers: its facts, and the milliseconds since the first attempt.

        Raises:
            Refused: If it still refuses after two minutes, or hangs.
        """
        until = time.monotonic() + _PATIENCE_SECONDS
        started = time.perf_counter()
        while True:
            try:
                if self._server is None:
                    self._server = self._connect(self.scene.roster, self.name, self.scene.home, self.scene.options)
                facts = self._server.call(tool, arguments)
                return facts, 1e3 * (time.perf_counter() - started)
            except ServerGone:
                self.scene.counts["requests sent again"] += 1
                self._leave()
            except Refused as refusal:
                self.scene.refusals[f"{tool}: {str(refusal)[:160]}"] += 1
                if time.monotonic() > until:
                    raise
                time.sleep(_RETRY_SECONDS)
            except Hang as hang:
                self._leave()
                raise Refused(f"{tool} was not answered") from hang

    def _leave(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _run(self) -> None:
        try:
            while not self.scene.over.is_set():
                try:
                    self.step()
                except Refused as refusal:
                    self.scene.wrong(f"{self.name}: {refusal}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the soak must not pass for a success
            self.scene.wrong(f"{self.name} stopped: {type(error).__name__}: {error}")
        finally:
            try:
                self._leave()
            except OSError as error:
                self.scene.wrong(f"{self.name} could not leave: {error}")


class Writer(Actor):
    """Creates, updates, deletes and undoes files of its own; adds to what all writers share."""

    transport = "stdio"

    def __init__(self, scene: Scene, name: str, number: int, connect: Connect) -> None:
        super().__init__(scene, name, number, connect)
        self._made = 0
        self._own: dict[str, list[tuple[str, str]]] = {}
        self._themes = deque(range(number, len(THEMES), 3) if number < 3 else ())

    def step(self) -> None:
        """One commit."""
        deeds = [self._create] * 12 + [self._update] * 4 + [self._add] * 3 + [self._share] * 2
        deeds += [self._delete, self._hand_over, self._undo]
        self.random.choice(deeds)()
        self.scene.over.wait(self.random.random() * 0.1)

    def commit(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], str, float]:
        """Commit until acknowledged: the receipt, its request id, milliseconds."""
        request_id = self.request_id()
        receipt, milliseconds = self.ask("commit_memory", {**arguments, "request_id": request_id})
        return receipt, request_id, milliseconds

    def _word(self) -> tuple[str, bool]:
        self._made += 1
        chinese = self.random.random() < 0.5
        return marker(self.number * 1_000_000 + self._made, chinese=chinese), chinese

    def _create(self) -> None:
        word, chinese = self._word()
        theme = self._themes.popleft() if self._themes else None
        body = shelf(self.random, word, chinese=chinese) if theme is None else THEMES[theme].told
        topic = f"{self.name} {self._made}" if theme is None else f"theme {theme}"
        self._write(topic, word, body, theme)

    def _write(self, topic: str, word: str, body: str, theme: int | None = None) -> None:
        data = {"memory_type": "facts", "fields": {"topic": topic, "content": body}}
        arguments = {"operations": {"write_operations": [{"memory_data": data, "replace": True}]}}
        uri = f"viking://user/default/memories/facts/{topic}.md"
        self.scene.versions[uri] += 1
        receipt, request_id, milliseconds = self.commit(arguments)
        result = receipt["results"][0]
        if result["uri"] != uri or result["action"] not in ("created", "updated"):
            self.scene.wrong(f"{self.name}: {body!r} became {result}")
            return
        self._acknowledged(receipt["commit_id"], request_id, uri, body, milliseconds, theme)
        if theme is None:
            self._own.setdefault(uri, []).append((receipt["commit_id"], body))
            self.scene.recent.append(Known(uri, self.scene.versions[uri], word, body))

    def _acknowledged(
        self,
        commit_id: str,
        request_id: str,
        uri: str,
        body: str | None,
        milliseconds: float,
        theme: int | None = None,
        *,
        shared: bool = False,
    ) -> None:
        entry = Committed(commit_id, request_id, uri, body, milliseconds, self.transport, theme, shared)
        self.scene.journal.write(entry)
        self.scene.counts["commits"] += 1

    def _update(self) -> None:
        if self._own:
            uri = self.random.choice(list(self._own))
            word, chinese = self._word()
            self._write(uri.rpartition("/")[2].removesuffix(".md"), word, shelf(self.random, word, chinese=chinese))

    def _delete(self) -> None:
        if self._own:
            uri = self.random.choice(list(self._own))
            del self._own[uri]
            self.scene.versions[uri] += 1
            operations = {"delete_operations": [{"uri": uri}]}
            receipt, request_id, milliseconds = self.commit({"operations": operations})
            if receipt["results"][0]["action"] != "deleted":
                self.scene.wrong(f"{self.name}: deleting {uri} gave {receipt['results'][0]}")
            else:
                self._acknowledged(receipt["commit_id"], request_id, uri, None, milliseconds)

    def _undo(self) -> None:
        if self._own:
            uri = self.random.choice(list(self._own))
            commit_id, _ = self._own[uri].pop()
            before = self._own[uri][-1][1] if self._own[uri] else None
            del self._own[uri]
            self.scene.versions[uri] += 1
            receipt, request_id, milliseconds = self.commit({"undo": commit_id})
            if receipt["status"] != "committed":
                self.scene.wrong(f"{self.name}: undoing {commit_id} of {uri} gave {receipt}")
            else:
                self._acknowledged(receipt["commit_id"], request_id, uri, before, milliseconds)
                self.scene.counts["undone"] += 1

    def _hand_over(self) -> None:
        if self._own:
            uri = self.random.choice(list(self._own))
            del self._own[uri]
            self.scene.versions[uri] += 1
            self.scene.handed_over.append(uri)

    def _add(self) -> None:
        calls = self.random.randint(1, 9)
        fields = {"tool_name": "soak_counter", "total_calls": calls, "success_count": calls}
        receipt, request_id, milliseconds = self.commit({"memory_type": "tools", "fields": fields})
        result = receipt["results"][0]
        if result["uri"] != COUNTER or result["action"] not in ("created", "updated"):
            self.scene.wrong(f"{self.name}: adding {calls} gave {result}")
            return
        self.scene.journal.write(Added(receipt["commit_id"], request_id, COUNTER, calls, milliseconds))
        self.scene.counts["commits"] += 1

    def _share(self) -> None:
        word, chinese = self._word()
        line = f"{shelf(self.random, word, chinese=chinese)}\n{SHARED_END}"
        edit = {"uri": SHARED, "patches": {"content": [{"search": SHARED_END, "replace": line}]}}
        receipt, request_id, milliseconds = self.commit({"operations": {"edit_operations": [edit]}})
        if receipt["results"][0]["action"] != "updated":
            self.scene.wrong(f"{self.name}: the shared list answered {receipt['results'][0]}")
            return
        self._acknowledged(receipt["commit_id"], request_id, SHARED, word, milliseconds, shared=True)


class HttpWriter(Writer):
    """A writer over streamable HTTP."""

    transport = "http"


class CommandWriter(Writer):
    """A writer each of whose commits is a program of its own that opens the store, commits and ends."""

    transport = "command line"

    def step(self) -> None:
        """One commit, or now and then none."""
        if self.random.random() < 0.5:
            self._create()
        else:
            self._update()
        self.scene.over.wait(self.random.random() * 3)

    def ask(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Run ``runebook commit`` until it answers; see ``Actor.ask``."""
        assert tool == "commit_memory"
        operations = self.scene.home.with_name(f"{self.name}.json")
        operations.write_text(json.dumps(arguments["operations"]), encoding="utf-8")
        options = [*self.scene.options, "--request-id", arguments["request_id"], "--json"]
        command = program("commit", self.scene.home, ["--operations", str(operations), *options])
        until = time.monotonic() + _PATIENCE_SECONDS
        started = time.perf_counter()
        while True:
            try:
                return run_once(self.scene.roster, self.name, command), 1e3 * (time.perf_counter() - started)
            except ServerGone:
                self.scene.counts["requests sent again"] += 1
            except Refused as refusal:
                self.scene.refusals[f"command line: {str(refusal)[:160]}"] += 1
                if time.monotonic() > until:
                    raise
            except Hang as hang:
                raise Refused("the command line did not end") from hang


class Talker(Actor):
    """Conversations that are sent again and again, each time a little longer, sometimes twice."""

    def __init__(self, scene: Scene, name: str, number: int, connect: Connect) -> None:
        super().__init__(scene, name, number, connect)
        self._session = 0
        self._messages: list[dict[str, str]] = []
        self._made = 0

    def step(self) -> None:
        """One more piece of the conversation, with some of what was sent before."""
        if self._session == 0 or len(self._messages) > 40:
            self._session += 1
            self._messages = []
        for _ in range(self.random.randint(1, 4)):
            self._made += 1
            chinese = self.random.random() < 0.5
            word = marker(self.number * 1_000_000 + self._made, chinese=chinese)
            role = "user" if len(self._messages) % 2 == 0 else "assistant"
            self._messages.append({"role": role, "content": shelf(self.random, word, chinese=chinese)})
        sent = self._messages if self.random.random() < 0.5 else self._messages[-self.random.randint(6, 12) :]
        session = f"soak-{self._session}"
        arguments: dict[str, Any] = {"messages": sent, "session_id": session, "request_id": self.request_id()}
        receipt, _ = self.ask("commit_memory", arguments)
        uri = f"viking://session/default/{session}/messages.jsonl"
        contents = [message["content"] for message in self._messages]
        self.scene.journal.write(Said(receipt["commit_id"], uri, contents))
        self.scene.counts["commits"] += 1
        if self.random.random() < 0.2:  # a host that knows nothing of request ids sends it once more
            self.ask("commit_memory", {"messages": sent, "session_id": session})
        self.scene.over.wait(self.random.random() * 0.5)


class Reader(Actor):
    """Looks for what was just acknowledged, in a process that did not write it."""

    def step(self) -> None:
        """One look."""
        look = self.random.choice((self._find, self._find, self._read, self._list, self._retrieve))
        look()
        self.scene.counts["reads"] += 1
        self.scene.over.wait(self.random.random() * 0.2)

    def _known(self) -> Known | None:
        return self.random.choice(list(self.scene.recent)) if self.scene.recent else None

    def _find(self) -> None:
        known = self._known()
        if known is None:
            return
        found, _ = self.ask("find", {"query": known.word})
        until = time.monotonic() + _PATIENCE_SECONDS
        while _is_unfinished(found) and time.monotonic() < until and not self.scene.over.is_set():
            self.scene.counts["searches asked again"] += 1
            self.scene.over.wait(_RETRY_SECONDS)
            found, _ = self.ask("find", {"query": known.word})
        if _is_unfinished(found) and self.scene.over.is_set():
            return
        if known.uri not in [hit["uri"] for hit in found["memories"]] and self._current(known):
            self.scene.wrong(f"{self.name}: find {known.word!r} did not give {known.uri}: {found.get('notes')}")

    def _read(self) -> None:
        known = self._known()
        if known is None or not self._current(known):
            return
        try:
            page, _ = self.ask("read", {"uri": known.uri})
        except Refused as refusal:
            if self._current(known):
                self.scene.wrong(f"{self.name}: {known.uri} cannot be read: {refusal}")
            return
        if not page["content"].startswith(known.body) and self._current(known):
            self.scene.wrong(f"{self.name}: {known.uri} reads {page['content'][:80]!r} instead of {known.body!r}")

    def _list(self) -> None:
        self.ask("ls", {"uri": "viking://user/default/memories/facts"})

    def _retrieve(self) -> None:
        known = self._known()
        if known is not None:
            self.ask("retrieve", {"query": known.body})

    def _current(self, known: Known) -> bool:
        return self.scene.versions[known.uri] == known.version


def _is_unfinished(found: dict[str, Any]) -> bool:
    """Whether a search says itself that something is missing from its answer."""
    return any("being rebuilt" in note or "still being read" in note for note in found.get("notes") or ())
