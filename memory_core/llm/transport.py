"""What both SDKs' HTTP clients are given: a body that arrives in drops ends at the deadline, loopback needs no proxy.

A read time-out bounds the wait for each piece of an answer, not for the answer: gateways that send blanks while the
model thinks would keep a request alive for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2

_ENDS_AT = "runebook_ends_at"
_PROXIED = ("all://", "http://", "https://")


def http_options(*, loopback: bool) -> dict[str, Any]:
    """Arguments for the SDK's ``DefaultHttpxClient``."""
    hooks = {"request": [_note_deadline], "response": [_bound_body]}
    return {"event_hooks": hooks} | ({"mounts": dict.fromkeys(_PROXIED)} if loopback else {})


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, ends_at: float) -> None:
        self._stream = stream
        self._ends_at = ends_at

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if time.monotonic() > self._ends_at:
                raise httpx2.ReadTimeout("the answer was still arriving at the deadline")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _note_deadline(request: httpx2.Request) -> None:
    request.extensions[_ENDS_AT] = time.monotonic() + (request.extensions["timeout"]["read"] or float("inf"))


def _bound_body(response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _BoundedStream(response.stream, response.request.extensions[_ENDS_AT])
