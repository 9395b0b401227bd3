"""What a bridge must know of the conversation that it passes on, to go on with it at another server. No I/O.

Owns: which requests of the host lack their answer, what has to be said again to a new server, and telling apart the
questions that several servers asked the host. Where a message cannot be read, it is passed on as it is: the server
answers it.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_LOST = -32000
_LOST_HINT = (
    "The memory server ended while it worked on this; another one has taken over. Whether it was carried out is not "
    "known: look first (find, or history), then send the same call again; with a request_id it is applied once."
)
_HANDSHAKE = "initialize"
_READY = "notifications/initialized"
_CANCELLED = "notifications/cancelled"
#: Of these the last one counts, and of each resource.
_STANDING = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
_PRIVATE_ARGUMENT = "private_mode"
_AGAIN = "runebook-again"


class Lost(NamedTuple):
    """What a lost connection leaves to be done.

    Attributes:
        answers: Lines for the host: errors in place of answers.
        again: Lines for the next server: requests that change nothing and were not answered.
    """

    answers: list[bytes]
    again: list[bytes]


class Conversation:
    """One host's conversation, as lines pass in either direction; for one thread at a time."""

    def __init__(self) -> None:
        self.private = False
        self._handshake: bytes | None = None
        self._handshake_id: Any = None
        self._ready: bytes | None = None
        self._standing: dict[str, bytes] = {}
        self._open: dict[str, tuple[str, bytes]] = {}
        self._wishes: dict[str, bool] = {}
        self._asked: dict[str, Any] = {}
        self._servers = 1

    @property
    def owes(self) -> bool:
        """Whether the host waits for an answer."""
        return bool(self._open)

    def from_host(self, line: bytes) -> bytes | None:
        """Note a line of the host's; what of it goes to the server, None for nothing."""
        message = _read(line)
        if message is None:
            return line
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return self._answer_to_server(message, line)
        if number is None:
            if method == _READY:
                self._ready = line
            elif method == _CANCELLED:
                self._answered(_member(message, "params", "requestId"))
            return line
        if method == _HANDSHAKE:
            self._handshake, self._handshake_id, self._ready = line, number, None
        elif method in _STANDING:
            self._standing[f"{method.partition('/')[0]} {_member(message, 'params', 'uri')}"] = line
        elif method == "tools/call":
            wish = _member(message, "params", "arguments", _PRIVATE_ARGUMENT)
            if isinstance(wish, bool):
                self._wishes[_key(number)] = wish
        self._open[_key(number)] = (method, line)
        return line

    def from_server(self, line: bytes) -> bytes | None:
        """Note a line of the server's; what of it goes to the host, None for nothing."""
        message = _read(line)
        if message is None:
            return line
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            return self._question_of_server(message, method, line)
        if isinstance(number, str) and number.startswith(_AGAIN):
            return None
        if number == self._handshake_id and "error" in message:
            self._handshake = self._handshake_id = None  # refused: this client speaks otherwise
        wish = self._wishes.pop(_key(number), None)
        if wish is not None and "error" not in message and not _member(message, "result", "isError"):
            self.private = wish
        self._answered(number)
        return line

    def lost(self) -> Lost:
        """The connection is gone: what becomes of what was open."""
        answers, again = [], []
        for key, (method, line) in self._open.items():
            if method == "tools/call":
                error = {"code": _LOST, "message": _LOST_HINT}
                answers.append(_written({"jsonrpc": "2.0", "id": json.loads(key), "error": error}))
            elif method != _HANDSHAKE:
                again.append(line)
        self._open = {key: kept for key, kept in self._open.items() if kept[0] != "tools/call"}
        self._wishes.clear()
        for number in self._asked.values():
            params = {"requestId": number, "reason": "the server that asked has ended"}
            answers.append(_written({"jsonrpc": "2.0", "method": _CANCELLED, "params": params}))
        self._asked.clear()
        self._servers += 1
        return Lost(answers, again)

    def greeting(self) -> list[bytes]:
        """What a new server has to be told before anything else; what it answers is for nobody, unless still owed."""
        lines = []
        if self._handshake is not None:
            owed = _key(self._handshake_id) in self._open
            lines.append(self._handshake if owed else _renumbered(self._handshake, 0))
            if self._ready is not None:
                lines.append(self._ready)
        if self._ready is not None:
            standing = [line for line in self._standing.values() if _key_of(line) not in self._open]
            lines += [_renumbered(line, index) for index, line in enumerate(standing, start=1)]
        return lines

    def _answered(self, number: Any) -> None:
        self._open.pop(_key(number), None)

    def _question_of_server(self, message: dict[str, Any], method: str, line: bytes) -> bytes:
        """Its requests get numbers that no other server's had."""
        if self._servers == 1:
            if "id" in message:
                self._asked[_key(message["id"])] = message["id"]
            return line
        if "id" in message:
            number = f"{self._servers}/{_key(message['id'])}"
            self._asked[_key(message["id"])] = number
            return _written({**message, "id": number})
        known = self._asked.get(_key(_member(message, "params", "requestId")))
        if method == _CANCELLED and known is not None:
            return _written({**message, "params": {**message["params"], "requestId": known}})
        return line

    def _answer_to_server(self, message: dict[str, Any], line: bytes) -> bytes | None:
        number = message.get("id")
        asked = next((key for key, told in self._asked.items() if told == number), None)
        if asked is None:
            return line if self._servers == 1 else None
        del self._asked[asked]
        return line if self._servers == 1 else _written({**message, "id": json.loads(asked)})


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _written(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _renumbered(line: bytes, index: int) -> bytes:
    """A request said again, whose answer is for nobody."""
    return _written({**json.loads(line), "id": f"{_AGAIN}-{index}"})


def _key(number: Any) -> str:
    return json.dumps(number)


def _key_of(line: bytes) -> str:
    return _key(json.loads(line).get("id"))


def _member(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
