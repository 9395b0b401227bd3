"""How fast a store finds with its vectors scanned, on the Chroma server that it runs itself, and on one of its owner.

Fills a store once for each size (``bench.stores``), opens it in each mode, waits until the mode is in use, and asks the
same questions with all caches off: p50 and p95 of find and of the vector search alone (100 nearest), the ten nearest
compared with the exact ones, seconds until the mode was in use, and what the process and the server hold in memory.

    python -m bench.remote --sizes 10000,50000 [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from contextlib import ExitStack
from heapq import nlargest
from pathlib import Path
from typing import Literal, get_args

from bench.chroma_process import ChromaProcess
from bench.stdio_client import resident_mib
from bench.stores import fill
from bench.synthetic import told
from bench.timing import latency
from memory_core.core.config import Config, EmbeddingConfig, IndexConfig, SearchConfig
from memory_core.core.index.vectors import VectorIndex, count
from memory_core.core.memory.requests import FindRequest
from memory_core.runebook import Runebook, open_memory

Mode = Literal["exact", "chroma", "http"]
_QUESTIONS = 200
_CANDIDATES, _COMPARED = 100, 10
_SPACE = "user/default"
_PATIENCE_SECONDS = 1_800.0


def measure(home: Path, memories: int, mode: Mode, chroma: ChromaProcess | None) -> None:
    """One line for one mode of one filled store."""
    index = IndexConfig(mode=mode) if chroma is None else IndexConfig(mode=mode, url=chroma.url)
    config = Config(
        home=home, index=index, search=SearchConfig(cached_queries=0), embedding=EmbeddingConfig(wait_seconds=60)
    )
    with open_memory(config) as memory:
        memory.find(FindRequest("ready"))
        began = time.monotonic()
        _await(memory, mode)
        ready_seconds = time.monotonic() - began
        gc.collect()
        step = max(1, memories // _QUESTIONS)
        questions = [told((at * step + 1) % memories).question for at in range(_QUESTIONS)]
        finds = latency(lambda at: memory.find(FindRequest(questions[at])), _QUESTIONS)
        embedder = memory.indexer.embedder
        assert embedder is not None
        vectors = [embedder.embed([question], query=True)[0] for question in questions]
        connection, fingerprint = memory.indexer.catalog.connection(), embedder.fingerprint
        search = memory.indexer.vectors.nearest
        scan = VectorIndex(memory.store.files.state).nearest
        alone = latency(lambda at: search(connection, [_SPACE], fingerprint, [vectors[at]], _CANDIDATES), _QUESTIONS)
        common = 0
        for vector in vectors:
            found = search(connection, [_SPACE], fingerprint, [vector], _CANDIDATES).cosines
            exact = scan(connection, [_SPACE], fingerprint, [vector], _COMPARED).cosines
            common += len({*nlargest(_COMPARED, found, key=lambda document: found[document])} & {*exact})
        status = memory.indexer.vectors.status(connection, _SPACE, fingerprint)
        assert status.reason is None or mode == "exact", status
    server = "" if chroma is None else f", server {resident_mib(chroma.pid):.0f} MiB"
    print(
        f"{memories:>7,} {mode:<7} find p50 {finds.p50:6.1f} p95 {finds.p95:6.1f} ms   vectors alone p50 "
        f"{alone.p50:6.2f} p95 {alone.p95:6.2f} ms   recall@{_COMPARED} {common / _COMPARED / _QUESTIONS:.3f}   "
        f"ready in {ready_seconds:.0f} s   process {resident_mib(os.getpid()):.0f} MiB{server}",
        flush=True,
    )


def _await(memory: Runebook, mode: Mode) -> None:
    """Until all spaces are searched in this mode, and all rows are where they belong."""
    if mode == "exact":
        return
    embedder = memory.indexer.embedder
    assert embedder is not None
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        connection = memory.indexer.catalog.connection()
        status = memory.indexer.vectors.status(connection, _SPACE, embedder.fingerprint)
        if status.backend == mode and status.sent_rows == count(connection, _SPACE, embedder.fingerprint):
            return
        memory.indexer.wake()
        time.sleep(0.2)
    raise SystemExit(f"the mode {mode} was never in use")


def main() -> None:
    """Fill where needed, measure each mode, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,50000", help="memories, separated by commas")
    parser.add_argument("--keep", type=Path, default=None, help="folder of filled stores, kept and used again")
    parser.add_argument("--modes", default=",".join(get_args(Mode)), help="which, separated by commas")
    arguments = parser.parse_args()
    modes: list[Mode] = [mode for mode in get_args(Mode) if mode in arguments.modes.split(",")]
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runebook-remote-")))
        for size in (int(text) for text in arguments.sizes.split(",")):
            home, mark = folder / str(size), folder / f"{size}.filled"
            if not mark.exists():
                fill(home, size)
                mark.touch()
            for mode in modes:
                with ExitStack() as running:
                    chroma = None
                    if mode == "http":
                        place = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="runebook-chroma-")))
                        chroma = running.enter_context(ChromaProcess(place))
                    measure(home, size, mode, chroma)


if __name__ == "__main__":
    main()
