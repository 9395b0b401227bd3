"""Each data set's own format is read as it is, mended where it is malformed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bench.corpora import beam, locomo, longmemeval, madial, memdaily, realtalk
from bench.corpus import pool, turns
from tests.bench import made_up


def test_malformed_evidence_ids_are_mended() -> None:
    assert list(locomo.evidence(["D8:6; D9:17"])) == ["D8:6", "D9:17"]
    assert list(locomo.evidence(["D:11:26"])) == ["D11:26"]
    assert list(locomo.evidence(["D30:05", "D1:3 D1:4"])) == ["D30:5", "D1:3", "D1:4"]
    assert list(locomo.evidence(["D", ""])) == []


def test_a_locomo_file_is_a_corpus_a_conversation_with_dated_turns(tmp_path: Path) -> None:
    first, second = locomo.read(made_up.locomo(tmp_path / "locomo.json"))
    ((arguments, ids),) = first.commits
    assert ids == ("D1:1", "D1:2", "D1:3")
    assert arguments["session_id"] == "session_1"
    assert arguments["messages"][0]["name"] == "Ines"
    assert arguments["messages"][0]["time"] == "2023-05-08T13:56:00+00:00"
    assert [question.scored for question in first.questions] == [True, True, False]
    assert first.questions[0].sessions == {"session_1"}
    assert (len(second.questions), second.skipped) == (2, 1)
    assert second.questions[1].gold == {"D1:3"}


def test_evidence_that_no_turn_has_is_left_out(tmp_path: Path) -> None:
    path = made_up.locomo(tmp_path / "locomo.json")
    path.write_text(path.read_text(encoding="utf-8").replace('["D1:3"]', '["D1:3", "D7:7"]'), encoding="utf-8")
    assert locomo.read(path)[0].questions[0].gold == {"D1:3"}


def test_pooling_keeps_equal_turn_ids_of_two_conversations_apart(tmp_path: Path) -> None:
    corpora = locomo.read(made_up.locomo(tmp_path / "locomo.json"))
    whole = pool(corpora)
    assert len({passage.id for passage in whole.passages}) == 6
    assert [arguments["session_id"] for arguments, _ in whole.commits] == [
        "conversation1_session_1",
        "conversation2_session_1",
    ]
    assert whole.questions[0].gold == {"conversation1_D1:3"}
    assert whole.questions[0].sessions == {"conversation1_session_1"}
    assert {question.cluster for question in whole.questions} == {"conversation1", "conversation2"}


def test_a_turn_is_embedded_with_two_neighbours_on_each_side_and_a_long_one_in_pieces() -> None:
    messages = [{"id": str(at), "name": "Ana", "content": f"line {at}"} for at in range(6)]
    found = turns("s", messages)
    assert found[3].own == "Ana: line 3"
    assert found[3].around == ("Ana: line 1\nAna: line 2\nAna: line 3\nAna: line 4\nAna: line 5",)
    assert found[0].around == ("Ana: line 0\nAna: line 1\nAna: line 2",)
    long = turns("s", [{"id": "0", "content": "今天天气很好。" * 600}])
    assert len(long[0].around) > 1


def test_madial_asks_with_the_last_three_user_lines_before_each_test_turn(tmp_path: Path) -> None:
    corpus = madial.read(*made_up.madial(tmp_path))
    assert [question.text for question in corpus.questions] == [
        "今天真热。\n我想吃冰淇淋!\n吃什么口味好呢?",
        "我想吃冰淇淋!\n吃什么口味好呢?\n对,就是那个!",
    ]


def test_a_memory_told_twice_is_one_memory_and_wanted_as_one(tmp_path: Path) -> None:
    corpus = madial.read(*made_up.madial(tmp_path))
    assert [passage.id for passage in corpus.passages] == ["1", "2", "3"]
    assert {question.gold for question in corpus.questions} == {frozenset({"2"})}
    arguments, ids = corpus.commits[0]
    assert ids == ("1",)
    assert arguments["memory_type"] == "events"
    assert arguments["fields"] == {"event_time": "2023-12-25"}


def test_longmemeval_is_a_corpus_a_question_asked_on_its_date(tmp_path: Path) -> None:
    first, unmarked, abstaining = longmemeval.read(made_up.longmemeval(tmp_path / "lme.json"))
    (question,) = first.questions
    assert question.gold == {"session_1:0"}
    assert question.sessions == {"session_1"}
    assert question.now == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert [ids for _, ids in first.commits] == [("session_1:0", "session_1:1"), ("session_2:0", "session_2:2")]
    assert first.commits[1][0]["messages"][0]["time"] == "2023-05-21T10:00:00+00:00"
    assert (unmarked.questions, unmarked.skipped) == ((), 1)
    (strange,) = abstaining.questions
    assert (strange.scored, strange.gold, strange.category) == (False, frozenset(), "abstention")


def test_a_limit_takes_the_first_questions(tmp_path: Path) -> None:
    path = made_up.longmemeval(tmp_path / "lme.json")
    assert [corpus.name for corpus in longmemeval.read(path, 1)] == ["q1"]


def test_a_realtalk_chat_has_a_session_a_day_and_its_own_times(tmp_path: Path) -> None:
    (corpus,) = realtalk.read(made_up.realtalk(tmp_path / "chats.json"))
    first, second = (dict(arguments) for arguments, _ in corpus.commits)
    assert [message["content"] for message in first["messages"]] == ["The kiln arrives from Limoges.", "[image]"]
    assert [message["id"] for message in first["messages"]] == ["D1:1", "D1:2"]
    assert second["messages"][0]["time"] == "2024-04-02T21:30:00+00:00"
    assert [question.gold for question in corpus.questions] == [{"D2:1"}]
    assert corpus.skipped == 1


def test_a_beam_chat_has_a_session_a_batch_and_the_questions_that_messages_answer(tmp_path: Path) -> None:
    (corpus,) = beam.read(made_up.beam(tmp_path / "chats.json"))
    sessions = [(arguments["session_id"], arguments["messages"][0]["time"][:10]) for arguments, _ in corpus.commits]
    assert sessions == [("batch_1", "2024-03-15"), ("batch_2", "2024-04-05")]
    assert corpus.passages[0].own == "My sprint ends on 28 March."
    assert [question.category for question in corpus.questions] == ["temporal_reasoning"]
    assert corpus.questions[0].gold == {"0", "1"}


def test_memdaily_mixes_notes_of_another_kind_in_the_order_of_their_times(tmp_path: Path) -> None:
    (chat, memories), _ = memdaily.read(made_up.memdaily(tmp_path / "notes.json"))
    texts = ["我上司的电话是19845027633。", "我用的手机是小米11。", "我表弟爱好美食。"]
    assert sorted(passage.own for passage in chat.passages) == sorted(texts)
    assert [len(arguments["messages"]) for arguments, _ in chat.commits] == [2, 1]
    assert sorted(arguments["memory_content"] for arguments, _ in memories.commits) == sorted(texts)
    (question,) = memories.questions
    assert question.gold == question.sessions == {"own_0"}
    assert question.now is not None
    assert question.now.date().isoformat() == "2024-04-09"
