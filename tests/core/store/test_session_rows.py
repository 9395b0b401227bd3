"""The queue of conversations: what waits, what is done, and that a store of the first version keeps its keys."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from memory_core.core.memory.results import SessionProgress
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.brief_notes import GROUP_MOST, LOST, ROW_MOST, BriefNote, BriefState
from memory_core.core.store.ledger import Ledger, migrations
from memory_core.core.store.session_rows import Extraction
from memory_core.core.store.sqlite import Database

LOG = MemoryUri.parse("viking://session/default/s1/messages.jsonl")
OTHER = MemoryUri.parse("viking://session/default/s2/messages.jsonl")
SPACE = MemoryUri.parse("viking://session/default")
AT = "2026-11-01T10:00:00.000+00:00"
TEA = "viking://user/default/memories/facts/茶.md"
LATER = "2026-11-02T10:00:00.000+00:00"


def stands(ledger: Ledger) -> Extraction:
    row = ledger.extractions.get(LOG)
    assert row is not None
    return row


def test_messages_that_come_later_wait_from_then_on(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=2, extracted=2), AT)
    ledger.advance(SessionProgress(LOG, stored=5), LATER)
    (row,) = ledger.extractions.waiting(SPACE)
    assert (row.extracted, row.waiting, row.since) == (2, 3, LATER)


def test_more_messages_do_not_make_older_ones_wait_shorter(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=2), AT)
    ledger.advance(SessionProgress(LOG, stored=5), LATER)
    assert ledger.extractions.waiting(SPACE)[0].since == AT


def test_the_longest_waiting_session_comes_first(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(OTHER, stored=1), AT)
    ledger.advance(SessionProgress(LOG, stored=1), LATER)
    assert [row.log for row in ledger.extractions.waiting(SPACE)] == [OTHER, LOG]
    assert [row.log for row in ledger.extractions.waiting(SPACE, limit=1)] == [OTHER]


def test_sessions_of_another_space_do_not_wait_here(ledger: Ledger) -> None:
    for space in ("default2", "another"):
        log = MemoryUri.parse(f"viking://session/{space}/s1/messages.jsonl")
        ledger.advance(SessionProgress(log, stored=1), AT)
    assert ledger.extractions.waiting(SPACE) == []


def test_a_failure_is_kept_with_its_reason_until_a_success(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=1), AT)
    ledger.extractions.postpone(LOG, "the model is overloaded", LATER)
    row = stands(ledger)
    assert (row.attempts, row.reason, row.retry_at) == (1, "the model is overloaded", LATER)
    assert ledger.extractions.waiting(SPACE, due_at=AT) == []
    assert len(ledger.extractions.waiting(SPACE, due_at=LATER)) == 1

    ledger.advance(SessionProgress(LOG, extracted=1), LATER)
    row = stands(ledger)
    assert (row.attempts, row.reason, row.retry_at) == (0, None, None)


def test_a_brief_is_remembered_with_what_it_showed_until_the_answer(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=3), AT)
    note = BriefNote("anna", 0, 3, "hash", {TEA: "ab"}, brief_id="b1")
    ledger.extractions.briefed(LOG, note)
    assert (stands(ledger).briefed, stands(ledger).briefs) == (3, (note,))
    ledger.advance(SessionProgress(LOG, extracted=3, answered="b1"), LATER)
    assert (stands(ledger).briefed, stands(ledger).briefs) == (0, (replace(note, state=BriefState.DONE),))


def test_the_queue_closes_the_briefs_that_it_passed_whoever_asked_for_them(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=9), AT)
    for author, end in (("anna", 3), ("bob", 5), ("cleo", 9), ("anna", 4)):
        ledger.extractions.briefed(LOG, BriefNote(author, 0, end, brief_id=f"b{end}"))
    ledger.advance(SessionProgress(LOG, extracted=5, answered="b5"), LATER)
    assert stands(ledger).briefed == 9
    assert [(note.author, note.end, note.state.value) for note in stands(ledger).briefs] == [
        ("anna", 3, "late"),
        ("bob", 5, "done"),
        ("cleo", 9, "open"),
        ("anna", 4, "late"),
    ]


def test_a_conversation_keeps_the_newest_briefs(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=3), AT)
    for number in range(ROW_MOST):
        ledger.extractions.briefed(LOG, BriefNote(f"client {number}", 0, 3))
    assert len(stands(ledger).briefs) == ROW_MOST
    ledger.extractions.briefed(LOG, BriefNote("one more", 0, 3))
    lost, *kept = stands(ledger).briefs
    assert (lost, len(kept), kept[0].author) == (LOST, ROW_MOST, "client 1")


def test_the_clients_of_one_token_share_the_room_for_its_briefs(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=3), AT)
    ledger.extractions.briefed(LOG, BriefNote("anna", 0, 3))
    for number in range(GROUP_MOST + 1):
        ledger.extractions.briefed(LOG, BriefNote(f"dan (client {number})", 0, 3))
    lost, *kept = stands(ledger).briefs
    assert (lost, [note.author for note in kept]) == (LOST, ["anna", *(f"dan (client {n})" for n in range(1, 5))])


def test_an_author_who_has_a_later_brief_has_lost_none(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=3), AT)
    for number in range(GROUP_MOST + 1):
        ledger.extractions.briefed(LOG, BriefNote("anna", 0, 3, brief_id=f"b{number}"))
    assert [note.brief_id for note in stands(ledger).briefs] == ["b1", "b2", "b3", "b4"]


def test_a_note_without_an_id_is_read(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=3), AT)
    with ledger.database.writing() as connection:
        connection.execute("UPDATE extractions SET briefed = 3, seen = ?", ('[["anna", 0, 3, "hash", {}, "open"]]',))
    assert stands(ledger).briefs == (BriefNote("anna", 0, 3, "hash"),)


@pytest.mark.parametrize(
    ("briefed", "states"), [(3, [BriefState.OPEN]), (0, [BriefState.DONE])], ids=["waits", "answered"]
)
def test_what_an_older_program_noted_of_a_brief_is_a_brief_of_nobody(
    ledger: Ledger, briefed: int, states: list[BriefState]
) -> None:
    ledger.advance(SessionProgress(LOG, stored=3), AT)
    with ledger.database.writing() as connection:
        connection.execute("UPDATE extractions SET briefed = ?, seen = ?", (briefed, f'{{"{TEA}": "ab"}}'))
    (note,) = stands(ledger).briefs
    assert (note.author, note.start, note.end, note.seen, [note.state]) == ("", 0, briefed, {TEA: "ab"}, states)
    ledger.extractions.briefed(LOG, BriefNote("anna", 0, 2))
    assert [note.author for note in stands(ledger).briefs] == ["", "anna"]


def test_a_log_that_a_person_shortened_never_counts_as_extracted_beyond_its_end(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=9, extracted=9), AT)
    ledger.advance(SessionProgress(LOG, stored=4), LATER)
    row = stands(ledger)
    assert (row.extracted, row.waiting) == (4, 0)


def test_a_finished_session_can_be_put_back_whole(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=9, extracted=9), AT)
    ledger.extractions.restart(LOG, 9, LATER)
    assert ledger.extractions.waiting(SPACE)[0].waiting == 9


def test_two_users_of_one_conversation_each_count_its_calls_and_take_back_their_own(ledger: Ledger) -> None:
    theirs = MemoryUri.parse("viking://session/anna/s1/messages.jsonl")
    for log in (LOG, theirs):
        ledger.advance(SessionProgress(log, stored=1, call_keys=frozenset({"a"})), AT)
    spaces = (SPACE, theirs.parent.parent)
    assert [ledger.extractions.counted(["a"], space) for space in spaces] == [{"a"}, {"a"}]
    ledger.advance(SessionProgress(LOG, uncounted=frozenset({"a"})), LATER)
    assert [ledger.extractions.counted(["a"], space) for space in spaces] == [frozenset(), {"a"}]


def test_what_follows_a_shortened_log_waits(ledger: Ledger) -> None:
    ledger.advance(SessionProgress(LOG, stored=9, extracted=9), AT)
    ledger.advance(SessionProgress(LOG, stored=5, known=2), LATER)
    (row,) = ledger.extractions.waiting(SPACE)
    assert (row.extracted, row.waiting) == (2, 3)


def test_a_ledger_of_the_first_version_is_brought_up_and_its_keys_fold_traditional_characters(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    directory = "viking://user/default/memories/preferences"
    Database(path, migrations()[:1], "FULL").close()
    with sqlite3.connect(path) as old:
        old.execute(
            "INSERT INTO files (uri, directory, name_fold, memory_type, key, sha256, seq) VALUES (?, ?, ?, ?, ?, ?, 1)",
            (f"{directory}/編輯器.md", directory, "編輯器.md", "preferences", "編輯器", "0"),
        )
    old.close()
    ledger = Ledger(path)
    found = ledger.locate(MemoryUri.parse(directory), "preferences", "编辑器")
    assert found is not None
    assert found.name == "編輯器.md"
    assert ledger.extractions.waiting(SPACE) == []
    ledger.close()
