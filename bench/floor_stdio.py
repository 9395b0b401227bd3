"""Runebook over stdio and what stands beside it: calls, starts and memory of server processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Peer
from bench.stdio_client import StdioClient
from bench.stores import serve
from bench.synthetic import told
from bench.timing import latency, settle

WORDS_ONLY = ("--set", "embedding.provider=none")
_CALLS = 200
#: Numbers of statements that a store of any size does not hold yet.
_NEW_FROM = 30_000_000
#: How an answer says that something is missing from it for now.
_UNREADY = "ask again"
_BY_HAND = "changed by hand"
_QUESTION = "who fixed the login page"


@dataclass(frozen=True, slots=True)
class Calls:
    """Medians in milliseconds, and resident memory in MiB: ours before the commits, a peer's after all calls."""

    commit: float
    find: float
    resident_mib: float


@dataclass(frozen=True, slots=True)
class Starts:
    """Medians, in seconds: from spawn to the initialize result, and from there to the first answer that lacks nothing.

    ``ratio`` is the median of what Runebook took by what the bare server took just before.
    """

    bare: float
    runebook: float
    ratio: float
    by_meaning: float
    by_words: float


def bare_call(command: Sequence[str]) -> float:
    """Milliseconds of a trivial call."""
    with StdioClient(command) as client:
        client.call("add", {"a": 1, "b": 2})
        return latency(lambda _index: client.call("add", {"a": 1, "b": 2}), _CALLS).p50


def bare_write(command: Sequence[str]) -> float:
    """Milliseconds of a call that keeps a text in a synced database and in a file, the least of a safe write."""
    with StdioClient(command) as client:
        client.call("keep", {"name": "first", "text": told(0).text})
        return latency(lambda index: client.call("keep", {"name": str(index), "text": told(index).text}), _CALLS).p50


def served(home: Path, memories: int, options: Sequence[str] = ()) -> Calls:
    """Commit into, and search, a filled store; it gains some notes."""
    step = max(1, memories // _CALLS)
    first = _NEW_FROM + time.time_ns() // 1_000_000_000 % 1_000_000_000
    with StdioClient([*serve(home), *options]) as client:
        client.call("find", {"query": _QUESTION})
        settle(client)
        find = latency(
            lambda index: client.call("find", {"query": told((index * step + 1) % memories).question}), _CALLS
        )
        resident = client.resident_mib()
        commit = latency(
            lambda index: client.call("commit_memory", {"memory_content": told(first + index).text}), _CALLS
        )
    return Calls(commit.p50, find.p50, resident)


def peer_calls(peer: Peer, memories: int) -> Calls:
    """Fill a peer, then search and write."""
    with StdioClient(peer.command, peer.environment) as client:
        for number in range(memories):
            client.call(*peer.write(told(number).name, told(number).text))
        search = latency(lambda index: client.call(*peer.search(told(index).question)), _CALLS)
        write = latency(
            lambda index: client.call(*peer.write(told(_NEW_FROM + index).name, told(_NEW_FROM + index).text)), _CALLS
        )
        return Calls(write.p50, search.p50, client.resident_mib())


def starts(bare: Sequence[str], home: Path, count: int) -> Starts:
    """Start the bare server, Runebook, and Runebook by words only, in turn."""
    bare_seconds, seconds, answers, word_answers = [], [], [], []
    for _ in range(count):
        with StdioClient(bare) as client:
            bare_seconds.append(client.cold_start_seconds)
        with StdioClient(serve(home)) as client:
            seconds.append(client.cold_start_seconds)
            answers.append(_answered(client) - client.cold_start_seconds)
        with StdioClient([*serve(home), *WORDS_ONLY]) as client:
            word_answers.append(_answered(client) - client.cold_start_seconds)
    ratios = [one / other for one, other in zip(seconds, bare_seconds, strict=True)]
    return Starts(*map(statistics.median, (bare_seconds, seconds, ratios, answers, word_answers)))


def answer_seconds(home: Path, count: int) -> tuple[float, float]:
    """Seconds from the initialize result to the first answer by meaning, and to the first that lacks nothing.

    The latter waits until every file was looked at, as one may have been changed by hand.
    """
    meant, whole = [], []
    for _ in range(count):
        with StdioClient(serve(home)) as client:
            meant.append(_answered(client, but=_BY_HAND) - client.cold_start_seconds)
            whole.append(_answered(client) - client.cold_start_seconds)
    return statistics.median(meant), statistics.median(whole)


def second_process_mib(home: Path) -> float:
    """MiB that a second server on the same store adds, shared pages counted once."""
    with StdioClient(serve(home)) as first:
        _work(first)
        alone = first.proportional_mib()
        with StdioClient(serve(home)) as second:
            _work(second)
            return first.proportional_mib() + second.proportional_mib() - alone


def _answered(client: StdioClient, but: str = "\n") -> float:
    """Seconds from spawn to the first answer that says of nothing that it is missing, but of what ``but`` names."""
    while any(
        _UNREADY in note and but not in note for note in client.call("find", {"query": _QUESTION}).get("notes", ())
    ):
        pass
    return time.perf_counter() - client.started


def _work(client: StdioClient) -> None:
    for number in range(20):
        client.call("find", {"query": told(number).question})
    settle(client)
