"""Settings that hold for every test."""

from __future__ import annotations

import gc
import getpass
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from memory_core.core.extract.loop import MemoryReActOrchestrator
from memory_core.core.extract.prompts import Conversation
from memory_core.core.extract.store_view import StoreView
from memory_core.core.memory.memory_type import MemoryTypeRegistry, builtin_schema_dir
from memory_core.runebook import Runebook, open_memory
from tests.stores import words_only

# No test may depend on how fast the machine is today. Each run tries other examples; RUNEBOOK_FUZZ_EXAMPLES has it try
# more of them at once.
settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=int(os.environ.get("RUNEBOOK_FUZZ_EXAMPLES", "50")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

# A shell that runs the suite in its background has it ignore Ctrl-C, and nohup a hangup: servers that tests
# start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# One worker a core is enough: torch and BLAS would start as many threads again in each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests and programs that they start compile their modules once, not each for itself, also where Python is told to keep
# none: to rewrite the assertions of all tests takes as long as many tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(tempfile.gettempdir()) / f"runebook-tests-{getpass.getuser()}"))
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

# Stores of tests wait for the disk at each commit. Where there is memory to spare, their folders are there: pytest
# reads this when it makes the first one. PYTEST_DEBUG_TEMPROOT=/tmp has them on disk.
_IN_MEMORY = Path("/dev/shm")
_SPARE_BYTES = 6_000_000_000
if _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _SPARE_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))

# The encoder's weights are unpacked once for all runs and processes, and not into the home of whoever runs them.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / ".pytest_cache" / "models")

#: Tests of these take the better part of a minute each: they begin first, so that nobody waits for one at the end.
_LONG = ("test_soak.py", "test_newcomer.py", "test_own_server.py", "test_small_model.py")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    """An empty store in ``tmp_path``, found by words alone."""
    with open_memory(words_only(tmp_path)) as opened:
        yield opened


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of every message that the update loop was given to extract from, in order."""
    texts: list[str] = []
    extract = MemoryReActOrchestrator.extract

    def noted(self: MemoryReActOrchestrator, conversation: Conversation, view: StoreView) -> Any:
        texts.extend(message.text for message in conversation.messages)
        return extract(self, conversation, view)

    monkeypatch.setattr(MemoryReActOrchestrator, "extract", noted)
    return texts


@pytest.fixture(scope="session")
def registry() -> MemoryTypeRegistry:
    """The memory types that come with it."""
    loaded = MemoryTypeRegistry()
    assert loaded.load_from_dir(builtin_schema_dir()) == []
    return loaded


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """With ``-n auto`` half as many workers again as there are cores: tests wait for servers that they start."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else max(2, count * 3 // 2)


def pytest_collection_finish() -> None:
    """What all tests import stays for the whole run: nobody looks through it again for what may go."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first; the others keep their order."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None or item.path.name not in _LONG)
