"""Stores under measurement: filled as a client fills them, asked through the library that the server uses."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.corpus import Corpus, Question
from bench.recall import LIMIT, Found, Outcome, judge
from bench.stdio_client import StdioClient
from bench.synthetic import write_operation
from memory_core.core.config import Config, EmbeddingConfig, SearchConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import Runebook, open_memory

#: Nothing may be missing from an answer because the model was still loading.
_WAIT_SECONDS = 60.0
#: Ranks passages for a question, at most ``LIMIT``, best first.
Search = Callable[[Question], Sequence[Found]]


def serve(home: Path) -> list[str]:
    """The command that serves a store over stdio."""
    return [sys.executable, "-m", "server.cli", "serve", "--home", str(home)]


def fill(home: Path, memories: int, batch: int = 200) -> None:
    """Commit made-up memories of six types, so many at once, and embed them all."""
    with opened(home, provider="none") as memory:
        for start in range(0, memories, batch):
            writes = [write_operation(number) for number in range(start, min(memories, start + batch))]
            receipt = memory.commit(CommitRequest(operations={"write_operations": writes}))
            if receipt.status != "committed":
                raise SystemExit(f"a batch was not committed: {receipt.status}")
    with opened(home) as memory:
        memory.find(FindRequest("ready"))


def commit_over_stdio(home: Path, corpus: Corpus) -> dict[str, str]:
    """Send everything through the tool ``commit_memory`` of a real server.

    Returns:
        The id of each passage by the URI that a hit names.
    """
    ids: dict[str, str] = {}
    with StdioClient(serve(home)) as client:
        for arguments, passages in corpus.commits:
            receipt = client.call("commit_memory", dict(arguments))
            if "messages" in arguments:
                log = f"viking://session/default/{arguments['session_id']}/messages.jsonl"
                stored = {f"{log}#{line}": name for line, name in enumerate(passages)}
                complete = receipt["usage"]["messages_new"] == len(passages)
            else:
                uris = [line["uri"] for line in receipt["results"] if line["action"] == "created"]
                stored, complete = dict(zip(uris, passages, strict=False)), len(uris) == len(passages)
            if not complete:
                raise SystemExit(f"not all of {arguments} was stored as new: {receipt}")
            ids |= stored
    return ids


@contextmanager
def opened(home: Path, *, provider: str = "bundled", floor: bool = True) -> Iterator[Runebook]:
    """A store with shipped defaults but for what is named, the model loaded and everything embedded."""
    embedding = EmbeddingConfig.model_validate({"provider": provider, "wait_seconds": _WAIT_SECONDS})
    with open_memory(Config(home=home, embedding=embedding, search=SearchConfig(floor=floor))) as memory:
        if provider != "none":
            memory.indexer.embed_all()
        yield memory


def asking(memory: Runebook, ids: Mapping[str, str]) -> Search:
    """``find`` as a ranking of passages; a hit that is no passage keeps its place under its URI."""

    def search(question: Question) -> list[Found]:
        hits = memory.find(FindRequest(question.text, limit=LIMIT, now=question.now)).hits
        return [Found(ids.get(hit.uri, hit.uri), tuple(ids.get(uri, uri) for uri in hit.also)) for hit in hits]

    return search


def ask(search: Search, corpus: Corpus, questions: Sequence[Question] | None = None) -> list[Outcome]:
    """Ask the corpus's questions, or others, and time each."""
    session_of = {passage.id: passage.session for passage in corpus.passages}
    outcomes = []
    for question in corpus.questions if questions is None else questions:
        started = time.perf_counter()
        hits = search(question)
        outcomes.append(judge(question, hits, session_of, time.perf_counter() - started))
    return outcomes
