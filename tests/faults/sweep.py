"""A process whose system calls fail on purpose, one after another, at every step of a commit; a script of the tests.

Round *n* lets *n* calls below the store through (or *n* strides of them) and fails the next, or all from there on. Each
the fault, reads and searches under it, ends the fault, and sends the same request again. What is acknowledged is kept
in a model; what the files hold must be the model's old or new state, never half, and the new one in the end. The rounds
end when a commit no longer reaches the fault. Prints one JSON line: rounds, faults, refusals, and what was wrong.
"""

from __future__ import annotations

import errno
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memory_core.core.config import load
from memory_core.core.errors import RunebookError
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.trailer import split
from memory_core.runebook import Runebook, open_memory

_LAST_ROUND = 400
_QUIET_ROUNDS = 3
FACTS = "viking://user/default/memories/facts"
KEEP = f"{FACTS}/猫.md"
COUNTER = "viking://agent/default/memories/tools/计数.md"


class Sweep:
    """Rounds of one fault over one store.

    Args:
        root: The store.
        calls: Letters of ``faults.c``.
        part: Of the paths whose calls fail.
        number: The errno.
        times: How many calls fail in a round; 0 is all from the first on.
        stride: How many more calls are let through in each round.
    """

    def __init__(self, root: Path, calls: str, part: str, number: int, times: int, stride: int) -> None:
        self.root = root
        self.rule = f"{calls} {part} {number}"
        self.times = times
        self.stride = stride
        self.control = root.parent / "control"
        self.log = root.parent / "log"
        self.bad: list[str] = []
        self.refusals: Counter[str] = Counter()
        self.model: dict[str, str | None] = {}
        self.rounds = 0

    def run(self) -> None:
        memory = self.open()
        memory.commit(CommitRequest("The cat is called 豆豆.", memory_type="facts", fields={"topic": "猫"}))
        memory.indexer.follow(None)  # what is not indexed when the disk begins to refuse is missing, and find says so
        quiet = 0
        for number in range(_LAST_ROUND):
            self.rounds += 1
            fired = self.fired()
            self.round(memory, number)
            quiet = 0 if self.fired() > fired else quiet + 1
            if quiet == _QUIET_ROUNDS:
                break
        else:
            self.bad.append("the fault never ended to be reached")
        memory.close()
        memory = self.open()
        self.check(memory, "reopened", list(self.model))
        memory.close()

    def round(self, memory: Runebook, number: int) -> None:
        old = dict(self.model)
        asked = self.asked(number)
        self.control.write_text(f"{self.rule} {number * self.stride} {self.times} {number}\n", encoding="utf-8")
        acknowledged = self.commit(memory, number, asked, f"round {number}")
        memory.store._delivery.settle()  # now, and not when the fault is over
        self.look(memory, f"round {number}, under the fault")
        self.control.write_text("", encoding="utf-8")
        new = old | ({} if acknowledged is None else acknowledged)
        for uri, body in self.state(asked).items():
            if body not in (old.get(uri), new.get(uri)):
                self.bad.append(f"round {number}: {uri} holds {body!r}, neither {old.get(uri)!r} nor {new.get(uri)!r}")
        again = self.commit(memory, number, asked, f"round {number}, sent again")
        if again is None or acknowledged not in (None, again):
            self.bad.append(f"round {number}: the same request got {acknowledged}, then {again}")
            return
        if acknowledged is None and again != asked:
            self.bad.append(f"round {number}: only {again} of {asked} after the fault was gone")
        self.model |= again
        if (
            memory.commit(CommitRequest(f"after {number}", memory_type="facts", fields={"topic": "after"})).status
            != "committed"
        ):
            self.bad.append(f"round {number}: the next commit was refused")
        self.check(memory, f"round {number}", list(asked))

    def asked(self, number: int) -> dict[str, str | None]:
        """What the operations of a round leave, by URI."""
        asked: dict[str, str | None] = {
            f"{FACTS}/新 {number}.md": f"第{number}个",
            f"{FACTS}/rewritten.md": f"version {number}",
            COUNTER: str(int(self.model.get(COUNTER) or 0) + number + 1),
        }
        if self.model.get(f"{FACTS}/新 {number - 1}.md") is not None:
            asked[f"{FACTS}/新 {number - 1}.md"] = None
        return asked

    def commit(
        self, memory: Runebook, number: int, asked: dict[str, str | None], where: str
    ) -> dict[str, str | None] | None:
        """Commit a round's operations: what of them the receipt acknowledges; None for an error."""
        writes: list[dict[str, Any]] = [
            {"memory_data": {"memory_type": "facts", "fields": {"topic": topic, "content": content}}, "replace": True}
            for topic, content in ((f"新 {number}", f"第{number}个"), ("rewritten", f"version {number}"))
        ]
        tool = {"tool_name": "计数", "total_calls": number + 1, "success_count": number + 1}
        writes.append({"memory_data": {"memory_type": "tools", "fields": tool}})
        deletes = [{"uri": uri} for uri, body in asked.items() if body is None]
        operations: dict[str, Any] = {"write_operations": writes, "delete_operations": deletes}
        try:
            receipt = memory.commit(CommitRequest(operations=operations, request_id=f"round-{number}"))
        except RunebookError as error:
            self.refusals[f"commit: {error.message}"] += 1
            return None
        except Exception as error:  # noqa: BLE001 - anything else must not come out
            self.bad.append(f"{where}: commit raised {type(error).__name__}: {error}")
            return None
        done = {result.uri for result in receipt.results if result.action in ("created", "updated", "deleted")}
        for result in receipt.results:
            if result.reason is not None:
                self.refusals[f"operation: {result.reason}"] += 1
        if not receipt.commit_id:
            return None  # every operation was rejected, nothing was stored
        return {uri: body for uri, body in asked.items() if uri in done}

    def look(self, memory: Runebook, where: str) -> None:
        """Reads and searches answer, or say in our own words that the disk does not."""
        for name, look in (
            ("read", lambda: memory.read(ReadRequest(KEEP))),
            ("find", lambda: memory.find(FindRequest("豆豆"))),
            ("ls", lambda: memory.ls(ListRequest(FACTS))),
            ("retrieve", lambda: memory.retrieve(RetrieveRequest("豆豆"))),
        ):
            try:
                answer = look()
            except RunebookError as error:
                self.refusals[f"{name}: {error.message}"] += 1
            except Exception as error:  # noqa: BLE001 - anything else must not come out
                self.bad.append(f"{where}: {name} raised {type(error).__name__}: {error}")
            else:
                if "豆豆" not in str(answer) and name != "ls":
                    self.bad.append(f"{where}: {name} did not give the memory")

    def state(self, uris: Iterable[str]) -> dict[str, str | None]:
        """What the files hold, read past the store; of the counter its count."""
        return {uri: self.body(uri) for uri in uris}

    def body(self, uri: str) -> str | None:
        path = self.root.joinpath(*uri.removeprefix("viking://").split("/"))
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:  # asked for once only: what waits may be delivered, and so deleted, at any moment
            return None
        found = split(text)
        return str((found.trailer or {}).get("total_calls")) if uri == COUNTER else found.body

    def check(self, memory: Runebook, where: str, uris: Iterable[str]) -> None:
        """What was acknowledged is on disk, and what is there is found."""
        for uri in uris:
            wanted, found = self.model.get(uri), self.body(uri)
            if found != wanted:
                self.bad.append(f"{where}: {uri} holds {found!r} instead of {wanted!r}")
        sought = next((uri for uri in uris if "新" in uri and self.model.get(uri) is not None), None)
        if sought is not None:
            hits = [hit.uri for hit in memory.find(FindRequest(str(self.model[sought]), limit=50)).hits]
            if sought not in hits:
                self.bad.append(f"{where}: {sought} is not found: {hits}")

    def open(self) -> Runebook:
        return open_memory(load(flags={"home": str(self.root), "embedding.provider": "none"}))

    def fired(self) -> int:
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0


def main(root: Path, calls: str, part: str, name: str, times: int, stride: int) -> None:
    sweep = Sweep(root, calls, part, getattr(errno, name), times, stride)
    sweep.run()
    answer = {"rounds": sweep.rounds, "faults": sweep.fired(), "refusals": sweep.refusals, "bad": sweep.bad}
    print(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
