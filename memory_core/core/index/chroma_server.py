"""A Chroma server as seen over HTTP: where it is, what it is asked, and one that Runebook starts itself.

Owns the address, the key, the time that a request may take and what an answer means. Speaks Chroma's own HTTP API
(``/api/v2``) rather than through the package's client: that one waits for ever, sends loopback through a proxy, reads
``.env`` of the working directory and takes a second to import. Sends numbers and vectors; never a text or a name.

The key of a server comes from the environment only, and is sent over TLS or loopback only. The server that Runebook
starts listens on loopback, where it asks nobody for a key: its tenant has a random name, which a file that only the
owner can read holds, and nothing lists tenants.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from filelock import FileLock, Timeout

from memory_core.core.config import IndexConfig, is_loopback
from memory_core.core.errors import ConfigInvalid
from memory_core.core.index.chroma import OWN, ServerFailed
from memory_core.core.llm.endpoint import (
    AttemptFailed,
    Deadline,
    Fault,
    http_options,
    is_transient,
    persist,
    retry_after_seconds,
)
from memory_core.core.store import atomic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
Answer = Mapping[str, Any]

KEY_NAME = "CHROMA_API_KEY"
DEFAULT_TENANT = "default_tenant"
DEFAULT_DATABASE = "default_database"
_CONNECT_SECONDS = 0.4
_SEARCH_SECONDS = 0.6
_WORK_SECONDS = 10.0
_RETRIES = 2
_PERSIST_SECONDS = 15.0
_QUOTED_CHARS = 200
#: Of some hundred vectors as JSON, with room.
_ANSWER_BYTES = 64 * 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
#: Of the graph; a search of 100 looks at so many.
_HNSW = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200, "ef_search": 400}

_CHILD = Path(__file__).with_name("chroma_child.py")
_START_SECONDS = 30.0
_START_POLL_SECONDS = 0.01
_END_SECONDS = 2.0
#: A folder with which the server does not come up so often is begun anew.
_STARTS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where the vectors go.

    Attributes:
        url: Of the server, without a path of the API.
        tenant: Of Chroma Cloud; a server of one's own has one.
        database: Of the tenant.
        key: Sent as ``x-chroma-token`` and, but to the cloud, as a bearer token; empty sends none.
        title: Its name where the address is not it.
    """

    url: str
    tenant: str = DEFAULT_TENANT
    database: str = DEFAULT_DATABASE
    key: str = field(default="", repr=False)
    title: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot work or would show the key.

        Raises:
            ConfigInvalid: If the address is none, or the key would be sent unencrypted.
        """
        hint = "Set index.url to an address like http://127.0.0.1:8000 or https://chroma.example.com."
        try:
            parts = urlsplit(self.url)
            _ = parts.port, httpx2.URL(self.url)
        except (ValueError, httpx2.InvalidURL) as error:
            raise ConfigInvalid(f"setting 'index.url' is no address of a server: {error}.", hint=hint) from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigInvalid("setting 'index.url' is no address of a server.", hint=hint)
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigInvalid(
                "setting 'index.url' holds a user, a query or a fragment.",
                hint=f"Give the address alone; a key belongs in the environment variable {KEY_NAME}.",
            )
        if self.key and parts.scheme == "http" and not self.is_loopback:
            raise ConfigInvalid(
                f"{KEY_NAME} would be sent to {parts.hostname} unencrypted.", hint="Use https in index.url."
            )
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise ConfigInvalid(f"{KEY_NAME} holds characters that no key has.", hint="Copy the key again.")
        if self.is_cloud and not self.key:
            raise ConfigInvalid(f"Chroma Cloud needs a key in {KEY_NAME}.", hint="Set it in the server's environment.")

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, where no proxy helps."""
        return is_loopback(urlsplit(self.url).hostname or "")

    @property
    def is_cloud(self) -> bool:
        """Whether it is Chroma Cloud, whose index is another."""
        return (urlsplit(self.url).hostname or "").endswith(".trychroma.com")

    @property
    def name(self) -> str:
        """What tells it from other places, for people and the catalog; holds no secret."""
        return self.title or f"{self.url.rstrip('/')} {self.tenant}/{self.database}"

    def headers(self) -> dict[str, str]:
        """Of every request."""
        found = {"content-type": "application/json", "user-agent": "runebook"}
        if self.key:
            found["x-chroma-token"] = self.key
            if not self.is_cloud:
                found["authorization"] = f"Bearer {self.key}"
        return found


def place_of(settings: IndexConfig, environment: Mapping[str, str]) -> Place:
    """The place that the settings and the environment name.

    Raises:
        ConfigInvalid: If it cannot be used; see ``Place``.
    """
    place = Place(
        settings.url,
        settings.tenant or DEFAULT_TENANT,
        settings.database or DEFAULT_DATABASE,
        environment.get(KEY_NAME, "").strip(),
    )
    if place.is_cloud and not (settings.tenant and settings.database):
        raise ConfigInvalid(
            "Chroma Cloud needs index.tenant and index.database.", hint="Both are shown on its page, beside the key."
        )
    return place


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as the server names it.

    Attributes:
        id: The server's own, new with each making.
        writer: Who wrote to it last; see ``chroma.Sent``.
    """

    id: str
    writer: str


class ChromaServer:
    """One database of a server. Safe to share between threads; nothing is sent before the first call.

    Args:
        place: Where it is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._work_timeout = httpx2.Timeout(_WORK_SECONDS, connect=_CONNECT_SECONDS * 5)
        self._search_timeout = httpx2.Timeout(_SEARCH_SECONDS, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS)
        self._http = httpx2.Client(
            base_url=f"{place.url.rstrip('/')}/api/v2",
            headers=place.headers(),
            follow_redirects=False,
            timeout=self._work_timeout,
            **http_options(loopback=place.is_loopback),
        )
        database = f"/tenants/{quote(place.tenant, safe='')}/databases/{quote(place.database, safe='')}"
        self._collections = f"{database}/collections"
        self._guard = threading.Lock()
        self._under_way, self._is_closed = 0, False

    def close(self) -> None:
        """Let go of all connections: with the last request that is under way, for it may just be making one."""
        with self._guard:
            self._is_closed = True
            if not self._under_way:
                self._http.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A request is under way in the body; see ``close``."""
        with self._guard:
            if self._is_closed:
                raise RuntimeError("the connections are closed")
            self._under_way += 1
        try:
            yield
        finally:
            with self._guard:
                self._under_way -= 1
                if self._is_closed and not self._under_way:
                    self._http.close()

    def version(self) -> str:
        """What the server says it is.

        Raises:
            ServerFailed: If it does not answer, or is no Chroma that this program understands.
        """
        limits = self._ask("GET", "/pre-flight-checks", soon=True)
        if not isinstance(limits, dict) or not limits.get("supports_base64_encoding"):
            raise ServerFailed(
                "what answers is no Chroma server that this version understands.",
                hint="Use a server of chromadb 1.0 or later (chroma run).",
            )
        return str(self._ask("GET", "/version", soon=True))[:_QUOTED_CHARS]

    def answers(self) -> bool:
        """Whether it is there at all."""
        try:
            self._once("GET", "/heartbeat", None, self._search_timeout)
        except AttemptFailed:
            return False
        return True

    def make_tenant(self) -> None:
        """Make the tenant and the database, where they are missing.

        Raises:
            ServerFailed: If the server fails.
        """
        tenant = quote(self.place.tenant, safe="")
        for path, name in (("/tenants", self.place.tenant), (f"/tenants/{tenant}/databases", self.place.database)):
            self._ask("POST", path, {"name": name}, soon=True, accepted=httpx2.codes.CONFLICT)

    def find(self, name: str, *, soon: bool = False) -> Collection | None:
        """The collection of that name, or None.

        Args:
            name: Its name.
            soon: Whether somebody waits for it.

        Raises:
            ServerFailed: If the server fails.
        """
        answer = self._ask("GET", f"{self._collections}/{name}", soon=soon, accepted=httpx2.codes.NOT_FOUND)
        return None if answer is None else self._collection(answer)

    def make(self, name: str, writer: str) -> Collection:
        """The collection of that name, made if there is none.

        Raises:
            ServerFailed: If the server fails.
        """
        values = {
            "name": name,
            "metadata": _metadata(writer),
            "configuration": {"spann": {"space": "cosine"}} if self.place.is_cloud else {"hnsw": _HNSW},
            "get_or_create": True,
        }
        return self._collection(self._ask("POST", self._collections, values))

    def sign(self, collection: str, writer: str) -> None:
        """Note who writes to it.

        Raises:
            ServerFailed: If the server fails.
        """
        self._ask("PUT", f"{self._collections}/{collection}", {"new_metadata": _metadata(writer)})

    def drop(self, name: str) -> None:
        """Delete a collection and all its rows, if it is there.

        Raises:
            ServerFailed: If the server fails.
        """
        self._ask("DELETE", f"{self._collections}/{name}", accepted=httpx2.codes.NOT_FOUND)

    def count(self, collection: str, *, soon: bool = False) -> int:
        """How many rows it holds.

        Raises:
            ServerFailed: If the server fails.
        """
        answer = self._ask("GET", f"{self._collections}/{collection}/count", soon=soon)
        return self._read(lambda: int(answer))

    def put(self, collection: str, seqs: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add rows, in place of those of these numbers that it holds.

        Args:
            collection: Its id.
            seqs: int64 (n,), at most ``BATCH_ROWS``.
            vectors: float32 (n, dim), L2-normalised.

        Raises:
            ServerFailed: If the server fails.
        """
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        values = {"ids": [str(seq) for seq in seqs.tolist()], "embeddings": rows}
        self._ask("POST", f"{self._collections}/{collection}/upsert", values)

    def nearest(self, collection: str, query: NDArray[np.float32], k: int, *, soon: bool = True) -> list[int]:
        """Numbers of the ``k`` nearest rows, best first; where somebody waits, it answers or fails within a second.

        Args:
            collection: Its id.
            query: float32 (dim,), L2-normalised.
            k: At most ``NEAREST_ROWS``.
            soon: Whether somebody waits for it.

        Raises:
            ServerFailed: If the server fails.
        """
        asked = {"query_embeddings": [query.tolist()], "n_results": k, "include": []}
        answer = self._ask("POST", f"{self._collections}/{collection}/query", asked, soon=soon)
        return self._read(lambda: [int(seq) for seq in answer["ids"][0]][:k])

    def rows(self, collection: str, seqs: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Vectors float32 (dim,) of these rows, by number; what it does not hold is left out.

        Raises:
            ServerFailed: If the server fails.
        """
        import numpy as np

        asked = {"ids": [str(seq) for seq in seqs], "include": ["embeddings"]}
        answer = self._ask("POST", f"{self._collections}/{collection}/get", asked)
        return self._read(
            lambda: {
                int(seq): np.array(row, np.float32)
                for seq, row in zip(answer["ids"], answer["embeddings"], strict=True)
            }
        )

    def _collection(self, answer: Any) -> Collection:
        return self._read(lambda: Collection(_id(answer["id"]), str((answer.get("metadata") or {}).get("writer", ""))))

    def _read(self, meaning: Callable[[], T]) -> T:
        try:
            return meaning()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ServerFailed("the vector server gave an answer of another shape.") from error

    def _ask(
        self, method: str, path: str, values: Answer | None = None, *, soon: bool = False, accepted: int | None = None
    ) -> Any:
        """One request; the background's are sent again after faults that pass by, a search's once more at most.

        Returns:
            The answer; None where the server refuses with the status that is accepted, too.
        """
        body = None if values is None else json.dumps(values).encode()

        def attempt() -> Any:
            return self._once(method, path, body, self._search_timeout if soon else self._work_timeout)

        try:
            if not soon:
                return persist(attempt, Deadline(_PERSIST_SECONDS), _RETRIES, time.sleep)
            try:
                return attempt()
            except AttemptFailed as failed:
                # The server was restarted meanwhile: a connection that was kept open is no more.
                if failed.fault.status is None and failed.fault.transient:
                    return attempt()
                raise
        except AttemptFailed as failed:
            if accepted is not None and failed.fault.status == accepted:
                return None
            raise self._failure(failed.fault) from failed

    def _once(self, method: str, path: str, body: bytes | None, timeout: httpx2.Timeout) -> Any:
        try:
            with self._counted(), self._http.stream(method, path, content=body, timeout=timeout) as answer:
                content = _content(answer)
        except httpx2.TimeoutException as error:
            raise AttemptFailed(Fault(None, "it does not answer in time", transient=False, timed_out=True)) from error
        except (httpx2.ConnectError, httpx2.UnsupportedProtocol) as error:
            raise AttemptFailed(Fault(None, "it cannot be reached", transient=False)) from error
        except (httpx2.HTTPError, RuntimeError) as error:  # the latter once it was closed
            transient = isinstance(error, httpx2.TransportError)
            raise AttemptFailed(Fault(None, "it ended the connection", transient=transient)) from error
        if not answer.is_success:
            text = f"it answered {answer.status_code}: {_reason(content) or answer.reason_phrase}"
            passing = is_transient(answer.status_code, answer.headers)
            wait = retry_after_seconds(answer.headers)
            raise AttemptFailed(Fault(answer.status_code, text, transient=passing, retry_after_seconds=wait))
        try:
            return json.loads(content) if content else None
        except (ValueError, RecursionError) as error:
            raise AttemptFailed(Fault(None, "its answer is no JSON", transient=False)) from error

    def _failure(self, fault: Fault) -> ServerFailed:
        text = fault.text.replace(self.place.key, "[key]") if self.place.key else fault.text
        if fault.status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN):
            hint = f"Set {KEY_NAME} in the environment of the server to a key that may read and write this database."
            return ServerFailed(f"the vector server refused the key: {text}.", fault.status, hint=hint)
        return ServerFailed(f"the vector server failed: {text}.", fault.status)


class OwnServer:
    """A Chroma server on the store's own folder, which one process of the store runs and all of them ask.

    Who runs it holds a lock that dies with it, and the server ends with its input, a pipe that nobody else holds: a
    killed owner leaves no server behind, and another process becomes the owner. Its folder holds nothing that the
    catalog does not; one with which the server does not come up is begun anew.

    Args:
        state: The store's ``.state`` folder.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "chroma"
        self._address = self._folder / "server.json"
        self._owner = FileLock(state / "locks" / "chroma.lock", mode=0o600, thread_local=False)
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._place: Place | None = None
        self._failures = 0

    def running(self) -> Place | None:
        """Where it answers, started where no process runs it; None while another one starts it.

        For a background thread.

        Raises:
            ServerFailed: If it does not come up.
        """
        with self._starting:
            process = self._process
            if process is not None and process.poll() is None and self._address.exists():
                return self._place
            try:
                if not self._owner.is_locked:
                    self._owner.acquire(timeout=0)
            except Timeout:
                return self._read()
            self.restart()
            self._place = self._started()
            return self._place

    def restart(self) -> None:
        """End it, if it is this process's, also while it is started, so that it is started when next asked for."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end(self) -> None:
        """End it, if it is this process's, and let another process run it; safe to call twice."""
        self.restart()
        self._owner.release(force=True)

    def _started(self) -> Place:
        found = self._read()
        if found is None or self._failures >= _STARTS:
            # Also what earlier versions kept there.
            shutil.rmtree(self._folder, ignore_errors=True)
            found = Place("http://127.0.0.1", secrets.token_hex(16))
        place = replace(found, url=f"http://127.0.0.1:{_free_port()}", title=OWN)
        try:
            self._run(place)
        except ServerFailed:
            self._failures += 1
            self.restart()
            raise
        self._failures = 0
        return place

    def _run(self, place: Place) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ServerFailed("this program is no Python interpreter that could run a vector server.")
        atomic.make_folder(self._folder)
        port = place.url.rpartition(":")[2]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHROMA")}
        try:
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD), "--path", "data", "--host", "127.0.0.1", "--port", port],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._folder,
                env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ANONYMIZED_TELEMETRY": "False"},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            raise ServerFailed(f"no process can be started to run a vector server: {error}.") from error
        until = time.monotonic() + _START_SECONDS
        with closing(ChromaServer(place)) as server:
            while not server.answers():
                if process.poll() is not None or time.monotonic() > until:
                    raise ServerFailed("the vector server did not come up.")
                time.sleep(_START_POLL_SECONDS)
            server.make_tenant()
        atomic.replace(self._address, json.dumps({"url": place.url, "tenant": place.tenant}) + "\n")

    def _read(self) -> Place | None:
        """What its owner wrote; None where that cannot be read."""
        try:
            values = json.loads(self._address.read_text(encoding="utf-8"))
            return Place(values["url"], values["tenant"], title=OWN)
        except (OSError, ValueError, KeyError, TypeError, ConfigInvalid):
            return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _metadata(writer: str) -> dict[str, str]:
    return {"program": "runebook", "writer": writer}


def _content(answer: httpx2.Response) -> bytes:
    """The body, unpacked; of one that does not end no more is read than an answer can have."""
    parts: list[bytes] = []
    size = 0
    for part in answer.iter_bytes():
        size += len(part)
        if size > _ANSWER_BYTES:
            raise AttemptFailed(Fault(None, "its answer does not end", transient=False))
        parts.append(part)
    return b"".join(parts)


def _id(value: Any) -> str:
    """A collection's id, which becomes a part of addresses."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("no id")
    return value


def _reason(content: bytes) -> str:
    """What the server says of an error, short."""
    try:
        values = json.loads(content)
        text = values.get("message") or values.get("error") or "" if isinstance(values, dict) else ""
    except (ValueError, RecursionError):
        text = content.decode("utf-8", "replace")
    return " ".join(str(text).split())[:_QUOTED_CHARS]
