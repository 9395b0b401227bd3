"""Random lines for a JSON-RPC server, and what must come of each."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz 模糊", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
METHODS = (
    *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read"),
    *(
        "resources/templates/list",
        "resources/subscribe",
        "subscriptions/listen",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    ),
    *(
        "logging/setLevel",
        "sampling/createMessage",
        "roots/list",
        "tasks/get",
        "",
        "不存在",
        "rpc.discover",
        "__init__",
    ),
)
TOOLS = ("commit_memory", "find", "read", "ls", "tree", "retrieve", "nothing", "")
#: once: exactly one answer, with the frame's id; null: exactly one error without an id; silent: no answer;
#: maybe: at most one answer, with the frame's id, any id or none.
Expected = Literal["once", "null", "silent", "maybe"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One line for the server, and what must come of it."""

    line: bytes
    expected: Expected
    id: str | int | None = None


class Frames:
    """Makes random frames; ids are never used twice.

    Args:
        seed: Fixes all of them.
        mark: Part of every id, so that rounds on one connection do not share any.
    """

    def __init__(self, seed: int, mark: int) -> None:
        self.dice = random.Random(seed)
        self._mark = mark
        self._count = 0

    def id(self) -> str | int:
        self._count += 1
        number = self._mark * 100_000 + self._count
        return self.dice.choice(
            (
                number,
                -number,
                2**53 + number,
                10**30 + number,
                f"{number}",
                f"编号 {number}",
                f'"{number}\\',
                " " * number,
            )
            if number < 200
            else (number, -number, 2**63 + number, f"#{number}", f"编号 {number}", f'q"{number}\\u')
        )

    def value(self, depth: int = 0) -> Any:
        kind = self.dice.randrange(13 if depth < 4 else 10)
        if kind < 3:
            return self.dice.choice(
                ("", "支付", "viking://", "viking://user/default", "../..", "\x00", "a" * 5000, "😀", "null")
            )
        if kind < 6:
            return self.dice.choice((0, -1, 1, 10**18, 10**400, 1.5, -0.0, 1e308, math.nan, math.inf, -math.inf))
        if kind < 9:
            return self.dice.choice((None, True, False))
        if kind == 9:
            return self.dice.choice(([], {}))
        if kind == 10:
            return [self.value(depth + 1) for _ in range(self.dice.randrange(4))]
        return {self.key(): self.value(depth + 1) for _ in range(self.dice.randrange(4))}

    def key(self) -> str:
        return self.dice.choice(
            ("name", "arguments", "uri", "query", "limit", "_meta", "cursor", "messages", "", "键", "id")
        )

    def params(self, method: str) -> dict[str, Any]:
        params = {self.key(): self.value() for _ in range(self.dice.randrange(4))}
        if method == "tools/call" and self.dice.random() < 0.8:
            arguments = {self.key(): self.value() for _ in range(self.dice.randrange(4))}
            params |= {"name": self.dice.choice(TOOLS), "arguments": arguments}
        elif method in ("resources/read", "prompts/get") and self.dice.random() < 0.7:
            params |= {"uri": self.dice.choice(("viking://user", "viking://../x", "a:b")), "name": "recall"}
        if self.dice.random() < 0.3:
            params["_meta"] = {"progressToken": self.value()}
        if self.dice.random() < 0.3:
            params["_meta"] = {**ENVELOPE, self.key(): self.value()}
        return params

    def request(self, **members: Any) -> tuple[dict[str, Any], str | int]:
        identifier, method = self.id(), self.dice.choice(METHODS)
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": self.params(method), **members}
        return message, identifier

    def frames(self, count: int) -> Iterator[Frame]:
        makers = (
            *(self.plain, self.plain, self.plain, self.plain, self.envelope, self.params_of_any_shape, self.odd_id),
            *(self.notification, self.cancelled, self.unasked_answer, self.no_json, self.batch, self.broken_utf8),
            *(self.surrogate, self.decorated, self.deep, self.long_integer, self.control, self.duplicate, self.mutated),
        )
        while count > 0:
            made = self.dice.choice(makers)()
            for frame in made if isinstance(made, tuple) else (made,):
                count -= 1
                yield frame

    def plain(self) -> Frame:
        message, identifier = self.request()
        return Frame(dumped(message, ensure_ascii=self.dice.random() < 0.5), "once", identifier)

    def envelope(self) -> Frame:
        """A request with a member of the envelope missing, wrong or too many."""
        member = self.dice.choice(("jsonrpc", "method", "result", "error", "extra"))
        wrong: Any = self.dice.choice((None, 2.0, "1.0", [], {}))
        message, identifier = self.request(**{member: wrong})
        if member in ("jsonrpc", "method") and self.dice.random() < 0.5:
            del message[member]
        return Frame(dumped(message), "once", identifier) if "method" in message else Frame(dumped(message), "maybe")

    def params_of_any_shape(self) -> Frame:
        message, identifier = self.request(params=self.value())
        return Frame(dumped(message), "once", identifier)

    def odd_id(self) -> Frame:
        message, _ = self.request(id=self.dice.choice((1.5, True, False, [], {}, None, [1], {"a": 1})))
        return Frame(dumped(message), "null")

    def notification(self) -> Frame:
        message, _ = self.request()
        del message["id"]
        kind = self.dice.choice(("initialized", "cancelled", "progress", "roots/list_changed", "unknown"))
        message["method"] = self.dice.choice((message["method"], f"notifications/{kind}"))
        return Frame(dumped(message), "silent")

    def cancelled(self) -> tuple[Frame, Frame]:
        message, identifier = self.request()
        params = {"requestId": identifier, "reason": self.value()}
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        return Frame(dumped(message), "maybe", identifier), Frame(dumped(cancel), "silent")

    def unasked_answer(self) -> Frame:
        outcome = self.dice.choice(("result", "error"))
        value: Any = self.dice.choice(({}, [], None, {"code": 1, "message": "x"}, {"content": "\ud800"}))
        return Frame(dumped({"jsonrpc": "2.0", "id": self.id(), outcome: value}), "silent")

    def no_json(self) -> Frame:
        return Frame(
            self.dice.choice((b"?", b"{", b'{"id":', b"[1,", b"NaN?", b"\x00", b"\xff\xfe", b"}", "不".encode())),
            "null",
        )

    def batch(self) -> Frame:
        messages = [self.request()[0] for _ in range(self.dice.randrange(4))]
        return Frame(dumped(messages), "null")

    def broken_utf8(self) -> Frame:
        message, identifier = self.request(params={"name": "BROKEN"})
        bad = self.dice.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf"))
        return Frame(dumped(message).replace(b"BROKEN", bad), "once", identifier)

    def surrogate(self) -> Frame:
        half = self.dice.choice(("\\ud800", "\\udc00", "\\udfff x", "\\ud83d\\ud83d"))
        message, identifier = self.request(params={"name": "HALF", "arguments": {"query": "HALF"}})
        return Frame(dumped(message).replace(b"HALF", half.encode()), "once", identifier)

    def decorated(self) -> Frame:
        message, identifier = self.request()
        before = self.dice.choice((b"\xef\xbb\xbf", b"  ", b"\t", b"\r", b"\n\n", b""))
        after = self.dice.choice((b"\r", b"  \t", b"\r\r", b""))
        return Frame(before + dumped(message) + after, "once", identifier)

    def deep(self) -> Frame:
        depth = self.dice.choice((150, 195, 250, 5_000, 100_000))
        brackets = self.dice.choice((("[", "]"), ('{"a":', "}")))
        nested = f"{brackets[0] * depth}1{brackets[1] * depth}"
        identifier = self.id()
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(identifier)},"method":"tools/call","params":{{"a":'
        return Frame(f"{head}{nested}}}}}".encode(), "once", identifier)

    def long_integer(self) -> Frame:
        message, identifier = self.request(params={"limit": "LONG"})
        digits = b"9" * self.dice.choice((20, 400, 4_301, 50_000))
        return Frame(dumped(message).replace(b'"LONG"', digits), "once", identifier)

    def control(self) -> Frame:
        message, identifier = self.request(params={"name": "CONTROL"})
        raw = bytes([self.dice.choice((0, 1, 8, 9, 11, 13, 27, 31, 127))])
        return Frame(dumped(message).replace(b"CONTROL", raw), "once", identifier)

    def duplicate(self) -> tuple[Frame, ...]:
        """One id several times, one after the other: each is a request of its own."""
        message, identifier = self.request(method="ping", params={})
        return (Frame(dumped(message), "once", identifier),) * self.dice.choice((2, 3))

    def mutated(self) -> Frame:
        line = bytearray(dumped(self.request()[0]))
        for _ in range(self.dice.randrange(1, 4)):
            place = self.dice.randrange(len(line))
            line[place : place + self.dice.randrange(3)] = bytes(
                self.dice.choices(range(256), k=self.dice.randrange(3))
            )
        return Frame(bytes(line).replace(b"\n", b" "), "maybe")


def dumped(message: Any, *, ensure_ascii: bool = True) -> bytes:
    return json.dumps(message, ensure_ascii=ensure_ascii).encode("utf-8", "replace")
