"""The process that forks, and a stand-in for the program; scripts that ``fork_server`` starts.

With a socket's path and names of modules this is the fork server: it imports them, then forks for each request, until
its standard input ends. With a socket's path and ``--`` it stands in for the program, with ``-c`` for a script, where a
client starts it itself: it lends its pipes to a forked process, passes on signals, and ends with its status. That has
to begin within milliseconds, so little is imported here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn


_REQUEST_BYTES = 200_000


def ask(path: str, task: Mapping[str, Any], descriptors: Sequence[int]) -> socket.socket:
    """Have a process forked with these as its standard streams; over the socket come its number, then its status."""
    surroundings = {"env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109 - pathlib takes a while to import
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(path)
    socket.send_fds(line, [json.dumps({**surroundings, **task}).encode()], list(descriptors))
    return line


def serve(path: str, modules: Sequence[str]) -> None:
    """Import, then fork whenever asked, until standard input ends."""
    import gc
    import importlib

    for name in modules:
        importlib.import_module(name)
    _use_once()
    gc.collect()
    gc.freeze()  # what was imported is shared with every child, and not looked through again
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    running: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([0, listener.fileno(), reading], [], [])
            if 0 in ready:  # whoever started it is gone
                break
            if reading in ready:
                os.read(reading, 4096)
                _report(running)
            if listener.fileno() in ready:
                line, _ = listener.accept()
                _fork(line, running)
    os.unlink(path)  # noqa: PTH108 - as above
    os.rmdir(os.path.dirname(path))  # noqa: PTH106, PTH120


def _use_once() -> None:
    """Use a store once: what is imported and compiled at the first commit and search, no forked process does again."""
    import tempfile
    import threading
    from pathlib import Path

    from memory_core.core.config import Config, EmbeddingConfig
    from memory_core.core.memory.requests import CommitRequest, FindRequest, RetrieveRequest, TreeRequest
    from memory_core.runebook import open_memory

    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory(Config(home=Path(folder), embedding=EmbeddingConfig(provider="none"))) as memory,
    ):
        memory.commit(CommitRequest("Tea 茶", project="global"))
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "Tea 茶?"}], project="global"))
        memory.find(FindRequest("tea 茶", project="global"))
        memory.retrieve(RetrieveRequest("tea 茶", project="global"))
        memory.tree(TreeRequest())
    assert threading.active_count() == 1, "a thread is not forked, and what it holds would stay held"


def _fork(line: socket.socket, running: dict[int, socket.socket]) -> None:
    request, descriptors, _, _ = socket.recv_fds(line, _REQUEST_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        _become(json.loads(request), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    running[pid] = line
    _send(line, pid)


def _report(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as line:
            _send(line, os.waitstatus_to_exitcode(status))


def _send(line: socket.socket, number: int) -> None:
    try:
        line.send(str(number).encode())
    except OSError:
        return  # nobody waits for it any more


def _become(task: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be the process that was asked for, from its standard streams to its exit status."""
    import atexit
    import threading
    import traceback

    status = 1
    try:
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.closerange(3, 1024)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if task.get("session"):
            os.setsid()
        os.environ.clear()
        os.environ.update(task["env"])
        os.chdir(task["cwd"])
        sys.argv = task["argv"]
        exec(compile(task["source"], "<forked>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                status = status or 120
        os._exit(status & 0xFF)


#: What ``python -m server.cli`` does.
PROGRAM = "import sys\nfrom server.cli import main\nsys.exit(main())\n"


def stand_in(path: str, source: str, arguments: Sequence[str]) -> int:
    """Lend this process's pipes to a forked one and live as long; its status."""
    line = ask(path, {"source": source, "argv": ["runebook", *arguments]}, (0, 1, 2))
    pid = int(line.recv(64))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)  # its pipes are the other's alone
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda given, _frame: os.kill(pid, given))
    status = int(line.recv(64))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        time.sleep(60)  # for the signal
    return status


if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place != os.path.dirname(__file__)]  # noqa: PTH120 - as above
    if sys.argv[2] == "--":
        sys.exit(stand_in(sys.argv[1], PROGRAM, sys.argv[3:]))
    if sys.argv[2] == "-c":
        sys.exit(stand_in(sys.argv[1], sys.argv[3], sys.argv[4:]))
    serve(sys.argv[1], sys.argv[2:])
