"""Several hosts, one server: each has its own folder, name and private mode, and none notices the others' endings."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memory_core.core.config import load
from server.local.channel import FOLDER_NAME, announced
from server.local.shared_server import Place, place_of
from tests.fork_server import starter
from tests.server.conftest import ERAS, Caller, Connect, Era, RawClient, StartHttp, environment
from tests.server.local.conftest import SHARED, ends_soon, kept_clean, kill_server, servers
from tests.stores import files_below
from tests.waiting import PATIENCE_SECONDS, lives

COMMIT = {"memory_type": "facts"}


@contextmanager
def raw(home: Path, *options: str, errors: Path | None = None) -> Iterator[RawClient]:
    with RawClient(home, *SHARED, *options, errors=errors) as client:
        yield client


def found(caller: Caller, query: str) -> list[str]:
    return [hit["abstract"] for hit in caller.facts("find", query=query)["memories"]]


def project_folder(parent: Path, name: str) -> Path:
    folder = parent / name
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def pair(host: Connect, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Caller, Caller]]:
    """Two hosts, one of each era, on one server."""
    parent = tmp_path_factory.mktemp("shared")
    with (
        kept_clean(parent / "home") as home,
        host(home, "legacy", cwd=project_folder(parent, "ferry"), name="editor") as one,
        host(home, cwd=project_folder(parent, "渡轮"), name="终端") as two,
    ):
        yield home, one, two


def test_two_hosts_share_one_server_and_its_memories(pair: tuple[Path, Caller, Caller]) -> None:
    home, one, two = pair
    one.facts("commit_memory", memory_content="The ferry leaves at nine.", project="global")
    two.facts("commit_memory", memory_content="渡轮九点开船。", project="global")
    assert found(one, "渡轮")
    assert found(two, "ferry")
    assert len(servers(home)) == 1


def test_each_host_works_in_its_own_project_and_under_its_own_name(pair: tuple[Path, Caller, Caller]) -> None:
    home, one, two = pair
    for caller, subject in ((one, "pier"), (two, "码头")):
        caller.facts("commit_memory", memory_content=f"{subject}: mooring 系泊", **COMMIT, project=".")
    with closing(sqlite3.connect(home / ".state" / "ledger.sqlite3")) as ledger:
        authors = {row[0] for row in ledger.execute("SELECT author FROM commits")}
    assert {"editor 1", "终端 1"} <= authors
    kept = [path for path in home.rglob("*mooring*.md") if not path.name.startswith(".")]
    trailers = [path.read_text(encoding="utf-8").partition("MEMORY_FIELDS")[2].rpartition("-->")[0] for path in kept]
    assert sorted(json.loads(trailer)["project"] for trailer in trailers) == ["ferry", "渡轮"]


def test_private_mode_of_one_host_does_not_reach_the_other(pair: tuple[Path, Caller, Caller]) -> None:
    _, one, two = pair
    one.facts("commit_memory", private_mode=True)
    try:
        refused = one.call("commit_memory", memory_content="a secret 秘密")
        assert refused.is_error
        receipt = two.facts("commit_memory", memory_content="Not a secret: gate 4. 四号门。")
        assert receipt["status"] == "committed"
    finally:
        one.facts("commit_memory", private_mode=False)
    assert one.facts("commit_memory", memory_content="Kept again. 又记下了。")["status"] == "committed"


def test_a_host_gets_an_answer_to_every_line_and_takes_nobody_with_it_when_it_leaves(
    pair: tuple[Path, Caller, Caller],
) -> None:
    home, one, _ = pair
    before = servers(home)
    with raw(home) as client:
        client.write(b"{nonsense \xe6\xb8")
        assert client.answer()["error"]["code"] == -32700
        client.write(b'{"jsonrpc": "2.0", "id": 77, "method": "ping", "params": {"x": "' + b"y" * 9_000_000 + b'"}}')
        refused = client.answer()
        assert refused["id"] == 77
        assert "Split the content" in refused["error"]["message"]
        for number in (11, 12, 13):
            client.write({"jsonrpc": "2.0", "id": number, "method": "ping"})
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert [client.answer()["id"] for _ in range(3)] == [11, 12, 13]
        assert client.process.wait(PATIENCE_SECONDS) == 0
    assert one.facts("ls", uri="viking://")
    assert servers(home) == before


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_a_bridge_that_is_told_to_end_does_so_as_a_server_would(pair: tuple[Path, Caller, Caller]) -> None:
    home, one, _ = pair
    with raw(home) as client:
        client.process.terminate()
        assert client.process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert one.facts("ls", uri="viking://")


def test_hosts_with_other_settings_are_served_apart(host: Connect, home: Path) -> None:
    (home.parent / "elsewhere").mkdir()
    with host(home) as one:
        assert one.facts("ls", uri="viking://")
        with host(home, "auto", "--set", "private_mode=true", cwd=home.parent / "elsewhere") as other:
            assert other.call("commit_memory", memory_content="not kept 不留").is_error
            assert len(servers(home)) == 2
        assert one.facts("commit_memory", memory_content="kept 留下")["status"] == "committed"


def test_where_no_server_can_be_had_the_host_is_served_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".state").mkdir(parents=True)
    (home / ".state" / FOLDER_NAME).write_text("in the way", encoding="utf-8")
    log = tmp_path / "stderr"
    with raw(home, errors=log) as client:
        receipt = client.call("commit_memory", memory_content="The ferry 渡轮.")["structuredContent"]
        assert receipt["status"] == "committed"
    assert client.process.wait(PATIENCE_SECONDS) == 0
    assert "served by a process of its own" in log.read_text(encoding="utf-8")


def test_hosts_attach_to_an_http_server_of_the_same_store(host: Connect, home: Path, start_http: StartHttp) -> None:
    server = start_http(*SHARED[1:])
    with host(home, "legacy") as caller:
        assert caller.facts("commit_memory", memory_content="渡轮")["status"] == "committed"
        assert servers(home) == []
        assert [each.pid for each in announced(home / ".state")] == [server.process.pid]


def test_stop_ends_the_background_server_and_the_next_call_starts_another(host: Connect, home: Path) -> None:
    with host(home, "legacy") as caller:
        caller.facts("commit_memory", memory_content="渡轮 ferry")
        (first,) = servers(home)
        stopped = starter().call("stop", "--home", str(home), env=environment())
        assert stopped.returncode == 0
        assert f"process {first}" in stopped.stdout.decode()
        assert ends_soon(first)
        assert servers(home) == []
        assert found(caller, "ferry")
        assert servers(home) not in ([], [first])
    stopped = starter().call("stop", "--home", str(home.parent / "nowhere"), env=environment())
    assert stopped.returncode == 0
    assert b"No background server" in stopped.stdout


@pytest.mark.slow
def test_the_server_ends_by_itself_after_the_last_host_and_never_before(host: Connect, home: Path) -> None:
    with host(home, "auto", "--set", "sharing.idle_minutes=0.01") as caller:
        caller.facts("ls", uri="viking://")
        (pid,) = servers(home)
        assert not threading.Event().wait(2.0)  # longer than it may be idle
        assert lives(pid)
    assert ends_soon(pid)
    assert list((home / ".state" / FOLDER_NAME).glob("*.json")) == []


@pytest.mark.slow
@ERAS
def test_a_killed_server_costs_a_session_nothing_but_its_private_mode_stays(
    host: Connect, home: Path, era: Era
) -> None:
    with host(home, era, cwd=project_folder(home.parent, "ferry"), name="editor") as caller:
        caller.facts("commit_memory", memory_content="acknowledged 确认", **COMMIT, project=".")
        caller.facts("commit_memory", private_mode=True)
        for _ in range(2):
            kill_server(home)
            assert found(caller, "确认") == found(caller, "acknowledged") != []
            assert caller.call("commit_memory", memory_content="a secret 秘密").is_error
        caller.facts("commit_memory", private_mode=False)
        receipt = caller.facts("commit_memory", memory_content="afterwards 之后", **COMMIT, project=".")
        assert receipt["status"] == "committed"


@pytest.mark.slow
def test_calls_under_way_when_the_server_is_killed_are_answered_and_what_was_acknowledged_is_kept(
    home: Path,
) -> None:
    acknowledged, failed = set[int](), set[int]()
    with raw(home) as client:
        for first in (100, 200, 300):
            client.call("ls", uri="viking://")
            (pid,) = servers(home)
            for number in range(first, first + 30):
                arguments = {"memory_content": f"Parcel number {number}, 第{number}号包裹"}
                call = {"method": "tools/call", "params": {"name": "commit_memory", "arguments": arguments}}
                client.write({"jsonrpc": "2.0", "id": number, **call})
            for count in range(30):
                if count == 3:
                    os.kill(pid, signal.SIGKILL)
                answer = client.answer()
                (failed if "error" in answer else acknowledged).add(answer["id"])
        told = client.call("tree", level_limit=6)["content"][0]["text"]
    assert len(acknowledged) + len(failed) == 90
    assert acknowledged
    stored = "\n".join(text.decode("utf-8") for path, text in files_below(home) if path.suffix == ".md")
    assert [number for number in acknowledged if f"第{number}号包裹" not in stored] == []
    assert told


@pytest.mark.slow
def test_hosts_that_start_at_once_start_one_server(home: Path) -> None:
    barrier = threading.Barrier(4)
    pids: list[list[int]] = []

    def start(number: int) -> None:
        barrier.wait()
        with raw(home) as client:
            client.call("commit_memory", memory_content=f"host {number} 主机")
            barrier.wait()
            pids.append(servers(home))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(pids) == 4
    assert {len(each) for each in pids} == {1}
    assert len({each[0] for each in pids}) == 1


@pytest.mark.slow
def test_a_server_of_another_version_is_not_attached_to(host: Connect, home: Path) -> None:
    with host(home) as caller:
        caller.facts("ls", uri="viking://")
        (old,) = servers(home)
        (path,) = (home / ".state" / FOLDER_NAME).glob("*.json")
        facts = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**facts, "version": "0.0.1", "settings": "of an older version"}), encoding="utf-8")
        (home / ".state" / FOLDER_NAME / f"{facts['settings'][:16]}.lock").unlink()  # an older one has another lock
        with host(home) as upgraded:
            assert upgraded.facts("commit_memory", memory_content="渡轮")["status"] == "committed"
            assert len(servers(home)) == 2
        assert caller.facts("ls", uri="viking://")
    assert lives(old)


def place(home: Path, *flags: str, **environment: str) -> Place:
    return place_of(str(home), None, flags, environment)


def test_the_same_wishes_mean_the_same_server_however_they_are_written_and_others_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "家"
    home.mkdir()
    same = [
        place(home),
        place(Path("家")),
        place_of(None, None, (), {"RUNEBOOK_HOME": str(home)}),
        place_of(None, None, (f"home={home}",), {"PATH": "/elsewhere"}),
    ]
    others = [
        place(home, "private_mode=true"),
        place(home, RUNEBOOK_USER_SPACE="other"),
        place(home, ANTHROPIC_API_KEY="another"),
        place(tmp_path / "elsewhere"),
    ]
    (home / "config.json").write_text('{"user_space": "other"}', encoding="utf-8")
    others.append(place(home))
    assert len({each.settings for each in same}) == 1
    assert len({each.settings for each in (same[0], *others)}) == 1 + len(others)


def test_folders_named_from_the_working_directory_mean_a_server_that_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, configured = tmp_path / "plain", tmp_path / "configured"
    configured.mkdir()
    (configured / "config.json").write_text('{"schema_dirs": ["types"]}', encoding="utf-8")
    ways: list[Callable[[], Place]] = [
        lambda: place(plain, "schema_dirs=types"),
        lambda: place(plain, RUNEBOOK_SCHEMA_DIRS="types"),
        lambda: place(configured),
    ]
    for asked in ways:
        found = set()
        for name in ("one", "two"):
            (tmp_path / name / "types").mkdir(parents=True, exist_ok=True)
            monkeypatch.chdir(tmp_path / name)
            assert asked().folder == tmp_path / name
            found.add(asked().settings)
        assert len(found) == 2


def test_the_options_lead_another_process_to_the_same_store_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text('{"user_space": "lin"}', encoding="utf-8")
    asked = place_of("store", "mine.json", ("embedding.provider=none",), {})
    monkeypatch.chdir(os.sep)
    options = dict(zip(asked.options[::2], asked.options[1::2], strict=True))
    name, _, value = options["--set"].partition("=")
    config = load(Path(options["--config"]), {}, {"home": options["--home"], name: value})
    assert (config.root, config.user_space, config.embedding.provider) == (tmp_path / "store", "lin", "none")
    assert place_of(options["--home"], options["--config"], (options["--set"],), {}).settings == asked.settings
