"""A Chroma server or Chroma Cloud as seen over HTTP: one database of it, its collections, and their rows.

Owns the address, the key, the time that a request may take and what an answer means. Speaks Chroma's own HTTP API
(``/api/v2``) rather than through the package's client: that one waits for ever, sends loopback through a proxy, reads
``.env`` of the working directory and takes a second to import. Sends numbers and vectors; never a text or a name.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import numpy as np
from numpy.typing import NDArray

from memory_core.core.errors import StorageFailed
from memory_core.core.index.chroma_place import KEY_NAME, Place
from memory_core.core.llm.endpoint import (
    AttemptFailed,
    Deadline,
    Fault,
    http_options,
    is_transient,
    persist,
    retry_after_seconds,
)

T = TypeVar("T")
Answer = Mapping[str, Any]

#: What Chroma Cloud takes in one write, and gives in one answer.
BATCH_ROWS = 300
NEAREST_ROWS = 300
_LISTED_ROWS = 300

_CONNECT_SECONDS = 0.4
_SEARCH_SECONDS = 0.6
_WORK_SECONDS = 10.0
_RETRIES = 2
_PERSIST_SECONDS = 15.0
_QUOTED_CHARS = 200
#: Of some hundred vectors as JSON, with room.
_ANSWER_BYTES = 64 * 1024 * 1024
_COSINE_MOST = 1.01
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_NEIGHBOURS = 32
_EF_CONSTRUCTION = 200
_EF_SEARCH = 400
_HINT = "Nothing to do for searches: vectors are scanned exactly meanwhile. Look at the server and at index.url."


class ServerFailed(StorageFailed):
    """The vector server gave no answer that can be used.

    Attributes:
        status: HTTP status; None where no answer came.
    """

    def __init__(self, message: str, status: int | None = None, *, hint: str = _HINT) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as the server names it.

    Attributes:
        id: The server's own, new with each making.
        writer: Who wrote to it last; see ``remote``.
    """

    id: str
    writer: str


class ChromaServer:
    """One database of a server. Safe to share between threads; nothing is sent before the first call.

    Args:
        place: Where it is.
        work_seconds: What a request of the background may take.
    """

    def __init__(self, place: Place, *, work_seconds: float = _WORK_SECONDS) -> None:
        self.place = place
        self._work = httpx2.Timeout(work_seconds, connect=_CONNECT_SECONDS * 5)
        self._search = httpx2.Timeout(_SEARCH_SECONDS, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS)
        self._http = httpx2.Client(
            base_url=f"{place.url.rstrip('/')}/api/v2",
            headers=place.headers(),
            follow_redirects=False,
            timeout=self._work,
            **http_options(loopback=place.is_loopback),
        )
        database = f"/tenants/{quote(place.tenant, safe='')}/databases/{quote(place.database, safe='')}"
        self._collections = f"{database}/collections"

    def close(self) -> None:
        """Let go of all connections; safe to call twice."""
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

    def find(self, name: str, *, soon: bool = False) -> Collection | None:
        """The collection of that name, or None.

        Args:
            name: See ``chroma.collection_name``.
            soon: Whether a search waits for it.

        Raises:
            ServerFailed: If the server fails.
        """
        try:
            return self._collection(self._ask("GET", f"{self._collections}/{name}", soon=soon))
        except ServerFailed as error:
            if error.status == httpx2.codes.NOT_FOUND:
                return None
            raise

    def make(self, name: str, writer: str) -> Collection:
        """The collection of that name, made if there is none.

        Raises:
            ServerFailed: If the server fails.
        """
        hnsw = {
            "space": "cosine",
            "max_neighbors": _NEIGHBOURS,
            "ef_construction": _EF_CONSTRUCTION,
            "ef_search": _EF_SEARCH,
        }
        values = {
            "name": name,
            "metadata": _metadata(writer),
            "configuration": {"spann": {"space": "cosine"}} if self.place.is_cloud else {"hnsw": hnsw},
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
        try:
            self._ask("DELETE", f"{self._collections}/{name}")
        except ServerFailed as error:
            if error.status != httpx2.codes.NOT_FOUND:
                raise

    def count(self, collection: str, *, soon: bool = False) -> int:
        """How many rows it holds.

        Raises:
            ServerFailed: If the server fails.
        """
        answer = self._ask("GET", f"{self._collections}/{collection}/count", soon=soon)
        return self._read(lambda: int(answer))

    def add(self, collection: str, seqs: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add rows; numbers that it holds already stay as they are.

        Args:
            collection: Its id.
            seqs: int64 (n,), at most ``BATCH_ROWS``.
            vectors: float32 (n, dim), L2-normalised.

        Raises:
            ServerFailed: If the server fails.
        """
        rows = [base64.b64encode(row.tobytes()).decode() for row in np.ascontiguousarray(vectors, dtype="<f4")]
        self._ask(
            "POST",
            f"{self._collections}/{collection}/add",
            {"ids": [str(seq) for seq in seqs.tolist()], "embeddings": rows},
        )

    def delete(self, collection: str, seqs: Sequence[int]) -> None:
        """Delete rows, at most ``BATCH_ROWS``; those it does not hold are no error.

        Raises:
            ServerFailed: If the server fails.
        """
        self._ask("POST", f"{self._collections}/{collection}/delete", {"ids": [str(seq) for seq in seqs]})

    def nearest(self, collection: str, query: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """The ``k`` nearest rows as ``(seq, cosine)``, best first; answers or fails within a second.

        Args:
            collection: Its id.
            query: float32 (dim,), L2-normalised.
            k: At most ``NEAREST_ROWS``.

        Raises:
            ServerFailed: If the server fails.
        """
        asked = {"query_embeddings": [query.tolist()], "n_results": k, "include": ["distances"]}
        answer = self._ask("POST", f"{self._collections}/{collection}/query", asked, soon=True)
        return self._read(
            lambda: [
                (int(seq), _cosine(distance))
                for seq, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
            ][:k]
        )

    def numbers(self, collection: str, offset: int) -> list[int]:
        """Numbers of its rows from ``offset`` on, some hundreds at a time; none at the end.

        Raises:
            ServerFailed: If the server fails.
        """
        asked = {"limit": _LISTED_ROWS, "offset": offset, "include": []}
        answer = self._ask("POST", f"{self._collections}/{collection}/get", asked)
        return self._read(lambda: [int(seq) for seq in answer["ids"]])

    def rows(self, collection: str, seqs: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Vectors float32 (dim,) of these rows, by number; what it does not hold is left out.

        Raises:
            ServerFailed: If the server fails.
        """
        asked = {"ids": [str(seq) for seq in seqs], "include": ["embeddings"]}
        answer = self._ask("POST", f"{self._collections}/{collection}/get", asked)
        return self._read(
            lambda: {
                int(seq): np.asarray(row, np.float32)
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

    def _ask(self, method: str, path: str, values: Answer | None = None, *, soon: bool = False) -> Any:
        """One request; the background's are sent again after faults that pass by, a search's once more at most."""
        body = None if values is None else json.dumps(values).encode()

        def attempt() -> Any:
            return self._once(method, path, body, self._search if soon else self._work)

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
            raise self._failure(failed.fault) from failed

    def _once(self, method: str, path: str, body: bytes | None, timeout: httpx2.Timeout) -> Any:
        try:
            with self._http.stream(method, path, content=body, timeout=timeout) as answer:
                content = _content(answer)
        except httpx2.TimeoutException as error:
            raise AttemptFailed(Fault(None, "it does not answer in time", transient=False, timed_out=True)) from error
        except (httpx2.ConnectError, httpx2.UnsupportedProtocol) as error:
            raise AttemptFailed(Fault(None, "it cannot be reached", transient=False)) from error
        except (httpx2.HTTPError, RuntimeError) as error:  # the latter once it was closed
            transient = isinstance(error, httpx2.TransportError)
            raise AttemptFailed(Fault(None, "it ended the connection", transient=transient)) from error
        if not answer.is_success:
            text = f"it answered {answer.status_code}: {_said(content) or answer.reason_phrase}"
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


def _cosine(distance: Any) -> float:
    cosine = 1.0 - float(distance)
    if not abs(cosine) <= _COSINE_MOST:  # nor is NaN
        raise ValueError("no distance of cosines")
    return cosine


def _id(value: Any) -> str:
    """A collection's id, which becomes a part of addresses."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("no id")
    return value


def _said(content: bytes) -> str:
    """What the server says of an error, short."""
    try:
        values = json.loads(content)
        text = values.get("message") or values.get("error") or "" if isinstance(values, dict) else ""
    except (ValueError, RecursionError):
        text = content.decode("utf-8", "replace")
    return " ".join(str(text).split())[:_QUOTED_CHARS]
