"""What private mode keeps out stays out of later imports, and a server that is gone keeps nothing out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core import private_times
from memory_core.core.conversation_notes import note_read, note_setting, talk_of
from memory_core.core.private_times import PrivateTimes, end_orphans, note_private
from memory_core.core.process import birth
from tests.server.command_line import Run, facts
from tests.server.conftest import RawClient
from tests.server.hosts.host_events import SESSION, claude, said, write

_SLOW = ("--set", "hooks.deadline_ms=30000", "--set", "hooks.patience_seconds=60")


class Talk:
    """A conversation of Claude Code in a file, held where this process works, as is a server that it starts."""

    def __init__(self, folder: Path, home: Path, run: Run) -> None:
        self.path = folder / f"{SESSION}.jsonl"
        self.folder = str(Path.cwd())
        self._home, self._run, self._records = home, run, list[dict[str, Any]]()

    def say(self, text: str) -> None:
        """One more message, said now."""
        now = datetime.now(UTC).isoformat()
        self._records.append(said(len(self._records), "user", text, cwd=self.folder, timestamp=now))
        write(self.path, self._records)

    def hook(self, *options: str) -> None:
        """Have the host's hook store the conversation."""
        self._hook("pre-compact", claude("PreCompact", self.path, cwd=self.folder), *options)

    def ask(self, text: str) -> None:
        """A prompt: its hook comes before it stands in the file."""
        self._hook("user-prompt", claude("UserPromptSubmit", self.path, cwd=self.folder, prompt=text))
        self.say(text)

    def switch(self, private: object) -> None:
        """Write private mode into the store's settings file."""
        self._home.mkdir(exist_ok=True)
        (self._home / "config.json").write_text(json.dumps({"private_mode": private}), encoding="utf-8")

    def _hook(self, event: str, given: dict[str, Any], *options: str) -> None:
        words = ("hook", event, "--home", str(self._home), *_SLOW, *options)
        assert self._run(*words, stdin=json.dumps(given).encode())[0] == 0

    def stored(self) -> list[str]:
        """What the store holds of it."""
        found = (self._home / "session" / "default").rglob("messages.jsonl")
        return [json.loads(line)["content"] for path in found for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def told(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """A conversation that begins."""
    for name in [name for name in os.environ if name.startswith("RUNEBOOK_")]:
        monkeypatch.delenv(name)
    (tmp_path / "claude").mkdir()
    return Talk(tmp_path / "claude", tmp_path / "h", run)


def note_of(state: Path) -> Path:
    """The one note of a private time."""
    (path,) = (state / "hooks" / "private").iterdir()
    return path


def imported(run: Run, home: Path, path: Path, *options: str) -> str:
    status, out, _ = run("import", str(path), "--home", str(home), *options)
    assert status == 0
    return out


def test_an_import_passes_over_what_a_client_said_in_private_mode(told: Talk, tmp_path: Path, run: Run) -> None:
    with RawClient(tmp_path / "h") as client:
        told.say("The tax letter has number 4711.")
        told.hook()
        client.call("commit_memory", private_mode=True)
        told.say("The codeword is Wolkenbruch.")
        told.hook()
        client.call("commit_memory", private_mode=False)
        told.say("Back to the tax letter.")
    for options in (("--dry-run",), (), ()):
        assert "skipped: 1 messages of a time in which private mode was on" in imported(
            run, tmp_path / "h", told.path.parent, *options
        )
    assert told.stored() == ["The tax letter has number 4711.", "Back to the tax letter."]


def test_an_import_passes_over_what_hooks_passed_over_by_the_settings(told: Talk, tmp_path: Path, run: Run) -> None:
    told.say("The tax letter has number 4711.")
    told.hook()
    told.say("The codeword is Wolkenbruch.")
    told.hook("--set", "private_mode=true")
    told.say("Back to the tax letter.")
    home = tmp_path / "h"
    done = facts(run("import", str(told.path), "--home", str(home), "--into", "anna/coder", "--dry-run", "--json"))
    assert done["skipped"]["messages of a time in which private mode was on"] == 2
    assert "skipped: 1 messages of a time in which private mode" in imported(run, home, told.path)
    assert told.stored() == ["The tax letter has number 4711.", "Back to the tax letter."]
    assert "Nothing new but what was left out: the rest is here already" in imported(run, home, told.path)


@pytest.mark.parametrize("stores_meanwhile", [False, True])
def test_what_is_said_while_the_settings_file_sets_private_mode_stays_out_and_what_was_said_before_does_not(
    told: Talk, tmp_path: Path, run: Run, stores_meanwhile: bool
) -> None:
    told.switch(False)
    told.ask("The tax letter has number 4711.")
    told.switch(True)
    told.ask("The codeword is Wolkenbruch.")
    if stores_meanwhile:
        told.hook()
    told.ask("The other word is Abendrot.")
    told.switch(False)
    told.ask("Back to the tax letter.")
    told.hook()
    assert told.stored() == ["The tax letter has number 4711.", "Back to the tax letter."]
    assert "skipped: 2 messages of a time in which private mode" in imported(run, tmp_path / "h", told.path)
    assert told.stored() == ["The tax letter has number 4711.", "Back to the tax letter."]


@pytest.mark.parametrize("word", ["yes", "on", "1", "True", True, 1])
def test_however_private_mode_is_spelled_what_is_said_stays_out(told: Talk, word: object) -> None:
    told.switch(False)
    told.ask("The tax letter has number 4711.")
    told.switch(word)
    told.ask("The codeword is Wolkenbruch.")
    told.switch(False)
    told.hook()
    assert told.stored() == ["The tax letter has number 4711."]


def test_a_file_of_long_ago_that_is_put_in_place_keeps_out_nothing_of_before(told: Talk, tmp_path: Path) -> None:
    told.switch(False)
    told.ask("The tax letter has number 4711.")
    ready = tmp_path / "ready.json"
    ready.write_text('{"private_mode": true}', encoding="utf-8")
    os.utime(ready, (1.0, 1.0))
    ready.replace(tmp_path / "h" / "config.json")
    told.ask("The codeword is Wolkenbruch.")
    told.switch(False)
    told.ask("Back to the tax letter.")
    told.hook()
    assert told.stored() == ["The tax letter has number 4711.", "Back to the tax letter."]


def test_a_host_for_which_private_mode_is_off_keeps_what_is_said(told: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    told.switch(True)
    monkeypatch.setenv("RUNEBOOK_PRIVATE_MODE", "false")
    told.ask("The tax letter has number 4711.")
    told.hook()
    assert told.stored() == ["The tax letter has number 4711."]


def test_what_is_said_in_private_before_there_is_a_store_stays_out_of_it(
    told: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNEBOOK_PRIVATE_MODE", "1")
    told.ask("The codeword is Wolkenbruch.")
    told.hook()
    monkeypatch.delenv("RUNEBOOK_PRIVATE_MODE")
    told.ask("The tax letter has number 4711.")
    told.hook()
    assert told.stored() == ["The tax letter has number 4711."]


def test_private_mode_in_a_settings_file_that_is_named_stays_out_too(
    told: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.switch(False)
    file = tmp_path / "own.json"
    monkeypatch.setenv("RUNEBOOK_CONFIG", str(file))
    for private, text in ((False, "The tax letter"), (True, "The codeword"), (False, "Back")):
        file.write_text(json.dumps({"private_mode": private, "home": str(tmp_path / "h")}), encoding="utf-8")
        told.ask(text)
    told.hook()
    assert told.stored() == ["The tax letter", "Back"]


_TALK = talk_of("s", "", "default")


@pytest.mark.parametrize(
    ("looks", "covered"),
    [
        # Each look: at which second, private mode, when the file was changed last, and whether it stores.
        ([(100, True, None, False), (200, False, None, False)], range(99, 199)),
        ([(100, True, 50, False), (200, False, 150, False)], range(50, 150)),
        ([(100, True, 50, False), (200, False, 50, False)], range(50, 199)),
        ([(100, True, None, True), (200, False, None, True)], range(100)),
        ([(100, True, None, True), (200, False, None, False)], range(199)),
        ([(100, True, 50, True), (200, False, 150, True)], range(50, 150)),
        ([(100, True, 50, False), (120, True, 50, True), (200, False, None, True)], range(50, 120)),
        ([(100, True, 50, True), (120, True, 50, False), (200, False, None, True)], range(50, 200)),
        ([(100, True, 50, True)], range(50, 100)),
        ([(100, True, 50, False), (150, True, 140, False), (200, False, 160, False)], range(50, 160)),
        ([(100, True, 50, False)], range(50, 300)),
        ([(100, False, 50, False)], range(0)),
    ],
)
def test_what_two_hooks_find_says_of_when_private_mode_was_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looks: list[tuple[int, bool, int | None, bool]],
    covered: range,
) -> None:
    for now, private, changed_at, stores in looks:
        monkeypatch.setattr("memory_core.core.private_times.time.time", lambda now=now: float(now))
        note_setting(tmp_path, _TALK, private=private, changed_at=changed_at, stores=stores)
    times = PrivateTimes(tmp_path, ["/w"], _TALK)
    at = [each for each in range(300) if times.cover({"time": datetime.fromtimestamp(each, UTC).isoformat()})]
    assert at == list(covered)


def test_private_mode_began_after_the_conversation_was_read_last(tmp_path: Path) -> None:
    note_read(tmp_path, _TALK, 80.0)
    note_setting(tmp_path, _TALK, private=True, changed_at=50.0, stores=False)
    assert not PrivateTimes(tmp_path, ["/w"], _TALK).cover({"time": "1970-01-01T00:01:25Z"})


def test_the_private_mode_of_a_killed_server_ends_when_the_next_one_starts(told: Talk, tmp_path: Path) -> None:
    client = RawClient(tmp_path / "h").open()
    client.call("commit_memory", private_mode=True)
    told.say("The codeword is Wolkenbruch.")
    client.kill()
    with client.process.stdin, client.process.stdout, RawClient(tmp_path / "h"):  # type: ignore[union-attr]
        told.say("The landlord is Mr. Ofner.")
        told.hook()
    assert told.stored() == ["The landlord is Mr. Ofner."]


def test_the_private_mode_of_a_killed_server_ends_at_the_next_hook(
    told: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RawClient(tmp_path / "h").open()
    client.call("commit_memory", private_mode=True)
    told.say("The codeword is Wolkenbruch.")
    client.kill()
    with client.process.stdin, client.process.stdout:  # type: ignore[union-attr]
        open_store = _saying(told, "Coffee is at 3.")
        monkeypatch.setattr("server.hosts.hook._opened", open_store)
        told.hook()
    assert told.stored() == ["Coffee is at 3."]


def _saying(told: Talk, text: str) -> Callable[..., Any]:
    """What opens the store for a hook, and something is said before."""
    from server.hosts.hook import _opened

    def opened(*given: Any) -> Any:
        told.say(text)
        return _opened(*given)

    return opened


@pytest.mark.skipif(birth(os.getpid()) is None, reason="this system does not tell when a process began")
def test_another_process_of_the_same_number_keeps_no_private_mode_on(tmp_path: Path) -> None:
    note_private(tmp_path, "/w", 1, private=True)
    path = note_of(tmp_path)
    note = json.loads(path.read_text("utf-8"))
    end_orphans(tmp_path)
    assert PrivateTimes(tmp_path, ["/w"]).is_on
    boot, began = note["birth"].split()
    for other in (f"{boot} {int(began) + 1}", f"another-start {began}"):
        write(path, [{**note, "birth": other}])
        assert not PrivateTimes(tmp_path, ["/w"]).is_on
        assert json.loads(path.read_text("utf-8"))["until"] is not None
    write(path, [{name: value for name, value in note.items() if name != "birth"}])  # of a server before
    assert PrivateTimes(tmp_path, ["/w"]).is_on


def test_private_times_are_kept_for_good_and_the_oldest_go_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_times, "_COUNT_LIMIT", 3)
    note_private(tmp_path, "/lasts", 99, private=True, now=1.0)
    for number in range(10, 15):
        note_private(tmp_path, "/w", number, private=True, now=1_000.0 * number)
        note_private(tmp_path, "/w", number, private=False, now=1_000.0 * number + 60)
    times = PrivateTimes(tmp_path, ["/w"])
    covered = [number for number in range(10, 15) if times.cover({"time": f"1970-01-01T{_clock(number)}Z"})]
    assert covered == [12, 13, 14]
    assert PrivateTimes(tmp_path, ["/lasts"]).is_on


def _clock(number: int) -> str:
    return datetime.fromtimestamp(1_000.0 * number + 30, UTC).strftime("%H:%M:%S")
