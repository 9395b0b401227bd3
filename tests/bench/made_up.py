"""Small files in the formats of the data sets, written by the tests that need them; nothing is taken from any set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.corpora.beam import ABILITIES

LIVES: tuple[Any, ...] = (
    (
        ("Ines", "Ruben"),
        (
            ("Ines", "I finally signed the lease for the pottery studio next to the tram depot."),
            ("Ruben", "Wonderful! My accordion teacher from Braga says hello."),
            ("Ines", "The kiln arrives from Limoges in the second week of April."),
        ),
        (
            ("From where does the kiln arrive in April?", ["D1:3"], 4),
            ("Where is Ruben's accordion teacher from?", ["D1:2"], 1),
            ("What did Ruben sign?", ["D1:1"], 5),
        ),
    ),
    (
        ("Kofi", "Mei"),
        (
            ("Kofi", "My sailing licence came through after the third exam."),
            ("Mei", "我在昆明开了一家面包店,专门卖荞麦面包。"),
            ("Kofi", "Then I will bring rye flour from the mill in Cork."),
        ),
        (
            ("昆明的面包店卖什么面包?", ["D1:2"], 4),
            ("What rye flour will Kofi bring from the mill in Cork?", ["D:1:3; D1:03"], 1),
            ("Who passed the sailing exam?", [], 4),
        ),
    ),
)


def locomo(path: Path) -> Path:
    """Two conversations of one session each, with an id that needs mending and a question without evidence."""
    samples = []
    for people, said, asked in LIVES:
        turns = [{"speaker": who, "dia_id": f"D1:{at}", "text": text} for at, (who, text) in enumerate(said, 1)]
        told: dict[str, Any] = {"speaker_a": people[0], "speaker_b": people[1], "session_1": turns}
        told["session_1_date_time"] = "1:56 pm on 8 May, 2023"
        qa = [{"question": text, "evidence": gold, "category": kind} for text, gold, kind in asked]
        samples.append({"sample_id": people[0], "conversation": told, "qa": qa})
    path.write_text(json.dumps(samples, ensure_ascii=False), encoding="utf-8", newline="\n")
    return path


def madial(folder: Path) -> tuple[Path, Path]:
    """Three memories, one of them told twice, and a dialogue with two test turns."""
    events = {
        "1": ("2023-12-25", "乐乐在圣诞晚会上跳了一支舞,非常开心。"),
        "2": ("2023-05-20", "乐乐吃了芒果口味的冰淇淋。"),
        "3": ("2023-07-01", "乐乐的小狗豆豆走丢了,他很伤心。"),
        "4": ("2023-05-20", "乐乐吃了芒果口味的冰淇淋。"),
    }
    memories = folder / "memory.jsonl"
    lines = [json.dumps({key: {"time": day, "event": text, "id": key}}) for key, (day, text) in events.items()]
    memories.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    dialogue = {
        "dialogue": [
            "<BOD>\n",
            '<乐乐>:"今天真热。"\n',
            '<Assistant>:"是啊。"\n',
            ' <乐乐>:"我想吃冰淇淋!"\n',
            '<Assistant>:"好主意。"\n',
            '<乐乐>:"吃什么口味好呢?"\n',
            '<Assistant>:"上次的芒果口味怎么样?"\n',
            '<乐乐>:"对,就是那个!"\n',
            '<Assistant>:"好的。"\n',
            "<EOD>\n",
        ],
        "test-turn": [6, 8],
        "relevant-id": [2, 4],
        "user-id": 1,
        "id": 0,
    }
    dialogues = folder / "dialogue.jsonl"
    dialogues.write_text(json.dumps(dialogue) + "\n", encoding="utf-8", newline="\n")
    return memories, dialogues


def longmemeval(path: Path) -> Path:
    """An answerable question, one without a marked turn, and one to abstain from although a turn is marked."""
    sessions: list[list[dict[str, Any]]] = [
        [
            {
                "role": "user",
                "content": "I adopted a greyhound called Pixel from the shelter in Leeds.",
                "has_answer": True,
            },
            {"role": "assistant", "content": "Congratulations! Greyhounds like soft beds.", "has_answer": False},
        ],
        [
            {"role": "user", "content": "Can you explain how a sourdough starter works?"},
            {"role": "assistant", "content": " "},
            {"role": "assistant", "content": "Wild yeast and lactic bacteria live in flour and water."},
        ],
    ]
    unmarked = [[{"role": turn["role"], "content": turn["content"]} for turn in session] for session in sessions]

    def item(name: str, asked: str, held: list[list[dict[str, Any]]], answers: list[str]) -> dict[str, Any]:
        return {
            "question_id": name,
            "question_type": "single-session-user",
            "question": asked,
            "answer": "Pixel",
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
            "haystack_session_ids": ["answer_1", "sharegpt_x/2"],
            "haystack_sessions": held,
            "answer_session_ids": answers,
        }

    items = [
        item("q1", "What is the name of the greyhound that I adopted?", sessions, ["answer_1"]),
        item("q2", "What did I adopt?", unmarked, ["answer_1"]),
        item("q3_abs", "Which telescope mirror did my violin teacher polish in Reykjavik?", sessions, ["answer_1"]),
    ]
    path.write_text(json.dumps(items), encoding="utf-8", newline="\n")
    return path


def realtalk(path: Path) -> Path:
    """One chat of two days, with a picture and evidence that no turn has."""
    turns = [
        ("Ines", "The kiln arrives from Limoges.", "01.04.2024, 09:00:00", "D1:1"),
        ("Ruben", "", "01.04.2024, 09:00:05", "D1:02"),
        ("Ruben", "My accordion teacher is from Braga.", "02.04.2024, 21:30:00", "D2:1"),
    ]
    said = [dict(zip(("speaker", "clean_text", "date_time", "dia_id"), turn, strict=True)) for turn in turns]
    qa = [
        {
            "question": "Where is Ruben's accordion teacher from?",
            "answer": "Braga",
            "evidence": ["D2:1"],
            "category": 1,
        },
        {"question": "When did it snow?", "answer": "never", "evidence": ["D9:9"], "category": 2},
    ]
    chat = {
        "name": {"speaker_1": "Ines"},
        "session_1": said[:2],
        "events_session_1": {},
        "session_2": said[2:],
        "qa": qa,
    }
    path.write_text(json.dumps({"Chat_1": chat}), encoding="utf-8")
    return path


def beam(path: Path) -> Path:
    """One chat of two batches, with a question whose gold is named in lists by name and one that is not asked."""
    batches = [
        {
            "batch_number": 1,
            "time_anchor": "March-15-2024",
            "turns": [[_turn(0, "user", "My sprint ends on 28 March.")]],
        },
        {"batch_number": 2, "time_anchor": "April-05-2024", "turns": [[_turn(1, "assistant", "Noted.")]]},
    ]
    asked = {"question": "When does my sprint end?", "source_chat_ids": {"first": [0], "second": [0, 1]}}
    none: dict[str, list[Any]] = {key: [] for key in ABILITIES}
    questions = none | {"temporal_reasoning": [asked], "abstention": [{"question": "Who am I?", "source_chat_ids": []}]}
    path.write_text(json.dumps({"1": {"chat": batches, "questions": questions}}), encoding="utf-8")
    return path


def _turn(number: int, role: str, content: str) -> dict[str, Any]:
    return {"role": role, "id": number, "content": f"{content} ->-> 1,{number}"}


def memdaily(path: Path) -> Path:
    """Two kinds of notes, a trajectory each; one note of the other kind is the same."""

    def trajectory(*notes: str) -> dict[str, Any]:
        messages = [
            {"mid": number, "message": note, "time": f"2024年04月0{number + 1}日 周一 08:4{number}", "place": "北京"}
            for number, note in enumerate(notes)
        ]
        question = {"question": f"{notes[0][:5]}是什么", "target_step_id": [0], "time": "2024年04月09日 周二 07:40"}
        return {"tid": 1, "message_list": messages, "question_list": [question]}

    kinds = {
        "01_simple_roles": [trajectory("我上司的电话是19845027633。", "我表弟爱好美食。")],
        "01_simple_items": [trajectory("我用的手机是小米11。", "我表弟爱好美食。")],
    }
    path.write_text(json.dumps(kinds, ensure_ascii=False), encoding="utf-8")
    return path
