"""A log tells what went wrong, and never what anybody said, asked, is called or keeps secret."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.config import LLMConfig
from memory_core.core.errors import RunebookError
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.runebook import Runebook, open_memory
from server.terminal import LogLine, without_content
from tests.fork_server import starter
from tests.stores import words_only

WORDS = ("zanzibar", "quokkafish", "桑给巴尔", "marmaladeqx")
TOPIC, TEXT, CHINESE, QUESTION = WORDS
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
KEY = "sk-ant-" + "api03-" + "Zz9Yy8Xx7Ww6" * 4


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, io.StringIO]]:
    """What is logged at INFO and above, and at DEBUG, as the server writes it; uncaught exceptions of threads too."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    root = logging.getLogger()
    logged: dict[int, io.StringIO] = {}
    handlers = []
    for level in (logging.INFO, logging.DEBUG):
        logged[level] = io.StringIO()
        handler = logging.StreamHandler(logged[level])
        handler.setLevel(level)
        handler.setFormatter(LogLine("%(name)s: %(message)s", os.environ))
        handlers.append(handler)
        root.addHandler(handler)
    before = root.level
    root.setLevel(logging.DEBUG)
    monkeypatch.setattr(threading, "excepthook", lambda given: logged[logging.INFO].write(f"UNCAUGHT {given!r}"))
    yield logged
    root.setLevel(before)
    for handler in handlers:
        root.removeHandler(handler)


def opened(home: Path) -> Runebook:
    # Nothing listens there: the model fails.
    llm = LLMConfig(provider="anthropic", model="m", base_url="http://127.0.0.1:9", retries=0, deadline_seconds=1)
    return open_memory(words_only(home, llm=llm))


def damage(home: Path) -> None:
    """Hand edits gone wrong in many ways."""
    facts = home / "user" / "default" / "memories" / "facts"
    (facts / f"{TOPIC} trailer.md").write_text(
        f"{TEXT}\n\n<!-- MEMORY_FIELDS\n{{broken {TEXT}\n-->\n", encoding="utf-8"
    )
    (facts / f"{TOPIC} bytes.md").write_bytes(b"\xff\xfe" + TEXT.encode() + b"\x00")
    (facts / f"{CHINESE}.md").write_text(CHINESE, encoding="utf-8")
    (facts / f"{TOPIC}: colon?.md").write_text(TEXT, encoding="utf-8")
    (facts / f"{TOPIC} link.md").symlink_to(home / f"{TOPIC} nowhere.md")
    (facts / f"{TOPIC} pipe.md").unlink(missing_ok=True)
    os.mkfifo(facts / f"{TOPIC} pipe.md")
    (facts / f"{TOPIC} folder.md").mkdir()
    unread = facts / f"{TOPIC} unread.md"
    unread.write_text(TEXT, encoding="utf-8")
    unread.chmod(0)
    huge = facts / f"{TOPIC} huge.md"
    with huge.open("wb") as stream:
        stream.truncate(64 * 1024 * 1024 + 1)
    log = home / "session" / "default" / f"{TOPIC} chat" / "messages.jsonl"
    log.write_text(log.read_text(encoding="utf-8") + f'{{"role": "{TEXT}"\n{TEXT}\n', encoding="utf-8")


def story(home: Path) -> None:
    """A whole life of a store, much of it going wrong."""
    said = [{"role": "user", "name": TOPIC, "content": f"{TEXT} {CHINESE} {TOKEN}"}]
    with opened(home) as memory:
        memory.commit(CommitRequest(f"{TEXT} {TOKEN}", memory_type="facts", fields={"topic": TOPIC}))
        memory.commit(CommitRequest(messages=said, session_id=f"{TOPIC} chat"))
        memory.find(FindRequest(f"{QUESTION} {TOKEN}"))
        damage(home)
        calls = (
            lambda: memory.store.adopt(),
            lambda: memory.commit(
                CommitRequest(f"{TEXT} {CHINESE}", memory_type="facts", fields={"topic": f"{TOPIC} pipe"})
            ),
            lambda: memory.commit(CommitRequest(messages=[*said, {"role": TEXT * 30}], session_id=f"{TOPIC} chat")),
            lambda: memory.commit(
                CommitRequest(operations={"edit_operations": [{"uri": f"viking://{TOPIC}", "patches": {TEXT: TEXT}}]})
            ),
            lambda: memory.commit(CommitRequest(TEXT, request_id=TOKEN)),
            lambda: memory.read(ReadRequest(f"viking://user/default/memories/facts/{TOPIC} bytes.md")),
            lambda: memory.read(ReadRequest(f"viking://user/default/memories/facts/{TOPIC} huge.md")),
            lambda: memory.find(FindRequest(QUESTION, filter={QUESTION: TEXT})),
            lambda: memory.retrieve(RetrieveRequest(QUESTION, session_id=f"{TOPIC} chat")),
            lambda: list(memory.extract_waiting()),
        )
        for call in calls:
            with contextlib.suppress(RunebookError):
                call()
    with opened(home) as memory, contextlib.suppress(RunebookError):
        memory.find(FindRequest(QUESTION))


def test_no_word_of_a_whole_story_is_in_the_log(lines: dict[int, io.StringIO], tmp_path: Path) -> None:
    logging.getLogger("probe").warning("the log is written")
    story(tmp_path)
    told, all_told = lines[logging.INFO].getvalue(), lines[logging.DEBUG].getvalue()
    assert "the log is written" in told
    assert "UNCAUGHT" not in told
    for word in (*WORDS, TOKEN, KEY):
        assert word not in told, [line for line in told.splitlines() if word in line]
    assert TOKEN not in all_told
    assert KEY not in all_told


def test_no_word_of_a_question_is_on_stderr_of_a_command(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.commit(CommitRequest(TEXT, memory_type="facts", fields={"topic": TOPIC}))
        memory.commit(
            CommitRequest(messages=[{"role": "user", "content": TEXT}], session_id=f"{TOPIC} chat", extract=False)
        )
    damage(tmp_path)
    for arguments in (["find", QUESTION], ["ls", "viking://user/default"]):
        home = ("--home", str(tmp_path), "--set", "embedding.provider=none")
        ran = starter().call(*arguments, *home, env=os.environ | {"ANTHROPIC_API_KEY": KEY})
        for word in (*WORDS, TOKEN, KEY):
            assert word not in ran.stderr.decode("utf-8")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("kept viking://user/a/memories/facts/My, own: diary.md made", "kept viking://… made"),
        ("'viking://user/a/memories/f/it.md' is over 64 MiB.", "'…' is over 64 MiB."),
        ("[Errno 13] Permission denied: '/home/me/My diary.md'", "[Errno 13] Permission denied: '…'"),
        ("cannot open /home/me/My diary.md at all", "cannot open … at all"),
        ("no type 'zanzibar' and no \"x y\"", "no type '…' and no '…'"),
        ("the model isn't there, and it can't be asked", "the model isn't there, and it can't be asked"),
        ("打不开 viking://user/a/memories/facts/日记.md", "打不开 viking://…"),
    ],
)
def test_names_and_quotations_are_left_out(line: str, told: str) -> None:
    assert without_content(line) == told


def test_an_exception_is_told_without_what_it_quotes_and_without_keys() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LogLine("%(message)s", {"MY_API_KEY": "plain-words-as-key", "PATH": "/usr/bin"}))
    logger = logging.Logger("own")
    logger.addHandler(handler)
    try:
        raise ValueError(f"cannot read 'zanzibar' with plain-words-as-key and {TOKEN} in /usr/bin")
    except ValueError:
        logger.exception("failed")
        logger.debug("whole: 'zanzibar', plain-words-as-key, %s", TOKEN)
    warning, whole = written.getvalue().split("whole: ")
    assert "Traceback" in warning
    assert "cannot read '…' with …" in warning
    assert "/usr/bin" in warning
    assert "plain-words" not in whole
    assert TOKEN not in whole
    assert "zanzibar" in whole
