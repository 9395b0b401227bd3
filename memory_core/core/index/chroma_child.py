"""The process that runs Chroma's server for ``chroma_server``: nothing of ours beside it, and it ends with its starter.

Run as a script, with the options of ``chroma run``. Imports Chroma's native part alone, which starts in a tenth of a
second; the package around it takes more than one.
"""

from __future__ import annotations

import os
import sys
import threading


def _end_with_starter() -> None:
    """The input is a pipe that the starter holds open as long as it lives."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    os.umask(0o077)  # what Chroma writes is nobody else's from its first byte on
    import chromadb_rust_bindings

    threading.Thread(target=_end_with_starter, daemon=True).start()
    chromadb_rust_bindings.cli(["chroma", "run", *sys.argv[1:]])
