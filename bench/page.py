"""What the page waits for: the API over a store of thousands of memories, over a real socket.

``python -m bench.page [--memories 10000] [--home DIR]``. Fills a store in process, serves it as
``runebook ui`` does, and asks like a browser, one request after the other over one connection: the first list, later
pages and filters, one memory, a search, the tree, and a change. Prints medians and p95 in milliseconds, and each median
as a multiple of that of an endpoint that does nothing (``POST /api/memory/preview`` of one word).
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from bench.stores import fill
from bench.synthetic import told
from bench.timing import Latency, latency

#: Memories of each commit, whose pages of the history are the longest.
_BATCH = 500
_TIMES = 40
_READY_SECONDS = 120.0


class Browser:
    """One kept connection to the server of the page."""

    def __init__(self, origin: str, key: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(origin).netloc, timeout=_READY_SECONDS)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None, etag: str | None = None) -> Any:
        """The answer's JSON.

        Raises:
            SystemExit: If the request was refused.
        """
        headers = self._headers if etag is None else {**self._headers, "If-Match": f'"{etag}"'}
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, f"/api/memory{path}", sent, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


@contextmanager
def served(home: Path) -> Iterator[Browser]:
    """The store as ``runebook ui`` serves it."""
    command = [sys.executable, "-m", "server.cli", "ui", "--no-open", "--port", "0", "--home", str(home)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        origin, _, key = address.partition("/#key=")
        yield Browser(origin, key)
    finally:
        process.terminate()
        process.wait()


def measure(browser: Browser, memories: int) -> dict[str, Latency]:
    """Latency of each request, and of a bare endpoint."""
    paths = [quote(entry["path"]) for entry in browser.ask("GET", "/entries?limit=200&sort=created")["entries"]]
    step = max(1, memories // _TIMES)

    def edit(index: int) -> None:
        path = paths[index % len(paths)]
        seen = browser.ask("GET", f"/entries/{path}")["sha256"]
        browser.ask("PATCH", f"/entries/{path}", {"salience": 0.4 + 0.01 * (index % 10)}, seen)

    actions: dict[str, Callable[[int], object]] = {
        "bare endpoint": lambda _index: browser.ask("POST", "/preview", {"markdown": "x"}),
        "opening list, newest 50": lambda _index: browser.ask("GET", "/entries"),
        "a page in the middle": lambda index: browser.ask("GET", f"/entries?offset={index * step}&sort=name"),
        "sorted by accesses": lambda _index: browser.ask("GET", "/entries?sort=accesses"),
        "filtered by words": lambda _index: browser.ask("GET", f"/entries?words={quote('合唱团')}"),
        "filtered by type and importance": lambda _index: browser.ask(
            "GET", "/entries?memory_type=facts&importance_min=0.5"
        ),
        "one memory": lambda index: browser.ask("GET", f"/entries/{paths[index % len(paths)]}"),
        "search": lambda index: browser.ask("POST", "/search", {"query": told(index * step).question}),
        "tree, one level": lambda _index: browser.ask("GET", "/tree?uri=viking://user/default/memories"),
        "history": lambda _index: browser.ask("GET", "/history"),
        "change of one memory": edit,
    }
    _wait_for_vectors(browser)
    found: dict[str, Latency] = {}
    for name, action in actions.items():
        action(0)
        found[name] = latency(action, _TIMES)
    return found


def _wait_for_vectors(browser: Browser) -> None:
    ends_at = time.monotonic() + _READY_SECONDS
    while browser.ask("POST", "/search", {"query": told(0).question})["notes"] and time.monotonic() < ends_at:
        time.sleep(0.5)


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--home", type=Path, help="keep the store here, and take it as it is if there is one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runebook-page-") as folder:
        home = arguments.home or Path(folder)
        if not (home / "user").is_dir():
            fill(home, arguments.memories, _BATCH)
        with served(home) as browser:
            found = measure(browser, arguments.memories)
    bare = found["bare endpoint"].p50
    print(f"{arguments.memories:,} memories, {_TIMES} requests each, one connection on loopback; milliseconds")
    print(f"{'':34} {'p50':>8} {'p95':>8} {'x bare':>8}")
    for name, measured in found.items():
        print(f"{name:34} {measured.p50:8.1f} {measured.p95:8.1f} {measured.p50 / bare:8.1f}")


if __name__ == "__main__":
    main()
