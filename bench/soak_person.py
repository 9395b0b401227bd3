"""Those of a soak who need no server: a person with an editor, and whoever kills, pauses and damages."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Literal

from bench.soak_actors import SHARED, SHARED_END, Scene
from bench.soak_clients import children
from bench.soak_journal import Edited, Harmed
from bench.soak_texts import marker, shelf

_NOTES = "viking://user/default/memories/notes"
_NUMBER = 50
#: How often vector servers are looked for.
_LOOK_SECONDS, _SERVER_SECONDS = 0.05, 0.7
#: Between two kills there are so many answers to actors, or so many seconds.
_ANSWERS, _PROGRESS_SECONDS = 3, 10.0


def path_of(home: Path, uri: str) -> Path:
    """Where a file of the soak lies; its names need no escaping."""
    return home.joinpath(*uri.removeprefix("viking://").split("/"))


class Person:
    """Creates, edits, renames and removes files by hand: those of nobody, and those that a writer has handed over."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.random = Random(f"{scene.seed}/person")
        self.thread = threading.Thread(target=self._run, name="person")
        self._made = 0
        self._own: list[str] = []

    def _run(self) -> None:
        deeds = [self._create, self._edit, self._edit, self._edit_handed_over, self._share, self._rename, self._remove]
        while not self.scene.over.wait(0.2 + self.random.random()):
            try:
                self.random.choice(deeds)()
            except OSError as error:
                self.scene.wrong(f"the person could not edit: {error}")

    def _sentence(self) -> str:
        self._made += 1
        chinese = self.random.random() < 0.5
        return shelf(self.random, marker(_NUMBER * 1_000_000 + self._made, chinese=chinese), chinese=chinese)

    def _create(self) -> None:
        text = self._sentence()
        uri = f"{_NOTES}/by hand 手写 {self._made}.md"
        path_of(self.scene.home, uri).parent.mkdir(parents=True, exist_ok=True)
        path_of(self.scene.home, uri).write_text(text + "\n", encoding="utf-8", newline="\n")
        self._own.append(uri)
        self._edited(uri, text + "\n", "created")

    def _edit(self) -> None:
        if self._own:
            self._save(self.random.choice(self._own), f"# {self._sentence()}\n\n{self._sentence()}\n")

    def _save(self, uri: str, text: str) -> None:
        path = path_of(self.scene.home, uri)
        if self.random.random() < 0.5:
            with path.open("r+", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.truncate()
            self._edited(uri, text, "in place")
        else:
            self._replace(path, text)
            self._edited(uri, text, "saved")

    def _replace(self, path: Path, text: str) -> None:
        beside = path.with_name(f".{path.name}.swp")
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)

    def _edit_handed_over(self) -> None:
        if self.scene.handed_over:
            uri = self.scene.handed_over.popleft()
            text = path_of(self.scene.home, uri).read_text(encoding="utf-8")
            body, gap, trailer = text.partition("\n\n<!-- MEMORY_FIELDS")
            self._save(uri, f"{body}\n{self._sentence()}{gap}{trailer}")
            self._own.append(uri)

    def _share(self) -> None:
        path = path_of(self.scene.home, SHARED)
        sentence = self._sentence()
        text = path.read_text(encoding="utf-8")
        self._replace(path, text.replace(SHARED_END, f"{sentence}\n{SHARED_END}"))
        self._edited(SHARED, sentence, "shared")

    def _rename(self) -> None:
        if self._own:
            old = self._own.pop(self.random.randrange(len(self._own)))
            self._made += 1
            new = f"{old.removesuffix('.md')} moved {self._made}.md"
            text = path_of(self.scene.home, old).read_text(encoding="utf-8")
            path_of(self.scene.home, old).rename(path_of(self.scene.home, new))
            self._own.append(new)
            self._edited(old, None, "renamed")
            self._edited(new, text, "renamed")

    def _remove(self) -> None:
        if len(self._own) > 5 and self.random.random() < 0.3:
            uri = self._own.pop(self.random.randrange(len(self._own)))
            path_of(self.scene.home, uri).unlink()
            self._edited(uri, None, "removed")

    def _edited(
        self,
        uri: str,
        text: str | None,
        how: Literal["created", "saved", "in place", "renamed", "removed", "shared"],
    ) -> None:
        with contextlib.suppress(FileNotFoundError):
            path_of(self.scene.home, uri).chmod(0o600)  # or doctor has much to say
        self.scene.journal.write(Edited(uri, text, how))
        self.scene.counts["hand edits"] += 1


class Harm:
    """Kills and pauses processes of the soak and damages the disposable index.

    Args:
        scene: The soak.
        kills_per_minute: SIGKILLs; a tenth as many pauses.
        damage_seconds: Between two damages to the index; 0 is never.
    """

    def __init__(self, scene: Scene, kills_per_minute: float, damage_seconds: float) -> None:
        self.scene = scene
        self.random = Random(f"{scene.seed}/harm")
        self.threads = [
            threading.Thread(target=self._kill_some, name="killer", args=(60 / kills_per_minute,)),
            threading.Thread(target=self._kill_servers, name="hunter"),
        ]
        if damage_seconds:
            self.threads.append(threading.Thread(target=self._damage_some, name="vandal", args=(damage_seconds,)))

    def _await_progress(self) -> None:
        """On a busy machine a server takes seconds to start: killed before it answers, it would prove nothing."""
        until = time.monotonic() + _PROGRESS_SECONDS
        answers = self.scene.answers
        while self.scene.answers < answers + _ANSWERS and time.monotonic() < until:
            if self.scene.over.wait(0.05):
                return

    def _kill_some(self, mean_seconds: float) -> None:
        while not self.scene.over.wait(min(10 * mean_seconds, self.random.expovariate(1 / mean_seconds))):
            self._await_progress()
            live = self.scene.roster.live()
            if not live:
                continue
            role, process = self.random.choice(live)
            if self.random.random() < 0.9:
                self.scene.roster.kill(process)
                self._harmed(f"killed {role}", "kills")
            else:
                self._pause(role, process)

    def _kill_servers(self) -> None:
        """Kill three of four vector servers that stores run, at any moment of their first seconds."""
        random = Random(f"{self.scene.seed}/hunter")
        met: set[int] = set()
        while not self.scene.over.wait(_LOOK_SECONDS):
            for role, process in self.scene.roster.live():
                for child in children(process.pid):
                    if child in met or not _is_server(child):
                        continue
                    met.add(child)
                    self.scene.counts["servers met"] += 1
                    if random.random() < 0.75 and not self.scene.over.wait(random.random() * _SERVER_SECONDS):
                        with contextlib.suppress(ProcessLookupError):
                            if _is_server(child):
                                os.kill(child, signal.SIGKILL)
                                self._harmed(f"killed the vector server of {role}", "kills of vector servers")

    def _pause(self, role: str, process: Popen[bytes]) -> None:
        seconds = 0.3 + 2.7 * self.random.random()
        process.send_signal(signal.SIGSTOP)
        try:
            self.scene.over.wait(seconds)
        finally:
            process.send_signal(signal.SIGCONT)
        self._harmed(f"paused {role} for {seconds:.1f} s", "pauses")

    def _damage_some(self, mean_seconds: float) -> None:
        damages = (self._without_catalog, self._without_catalog_file, self._garbled_catalog)
        chroma = (self._cut_vectors, self._without_vectors, self._without_vectors)
        while not self.scene.over.wait(mean_seconds * (0.5 + self.random.random())):
            damage = self.random.choice((*damages, *chroma))
            try:
                self._harmed(damage(), "damages to the index")
            except FileNotFoundError:
                continue  # a server has just moved it

    @property
    def _state(self) -> Path:
        return self.scene.home / ".state"

    def _without_catalog(self) -> str:
        for suffix in ("", "-wal", "-shm"):
            (self._state / f"index.sqlite3{suffix}").unlink(missing_ok=True)
        return "deleted the catalog"

    def _without_catalog_file(self) -> str:
        (self._state / "index.sqlite3").unlink(missing_ok=True)
        return "deleted the catalog, not its log"

    def _garbled_catalog(self) -> str:
        path = self._state / "index.sqlite3"
        size = path.stat().st_size
        with path.open("r+b") as stream:
            for _ in range(4):
                stream.seek(self.random.randrange(max(1, size)))
                stream.write(self.random.randbytes(2_000))
        return "garbled the catalog"

    def _cut_vectors(self) -> str:
        files = [path for path in (self._state / "chroma").rglob("*") if path.is_file()]
        if not files:
            return "found no vectors to cut"
        path = self.random.choice(files)
        os.truncate(path, path.stat().st_size // 2)
        return f"cut {path.name}"

    def _without_vectors(self) -> str:
        shutil.rmtree(self._state / "chroma", ignore_errors=True)
        return "deleted the vectors"

    def _harmed(self, what: str, count: str) -> None:
        self.scene.journal.write(Harmed(what))
        self.scene.counts[count] += 1


def _is_server(pid: int) -> bool:
    """Whether this process is a vector server, and not one that took its number."""
    try:
        return b"chroma_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
