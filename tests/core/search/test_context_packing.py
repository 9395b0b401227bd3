"""The budget: kept whatever is stored, whole pieces first, and nothing lost without a word."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.types import TextContent

from memory_core.core.memory.requests import CONTEXT_FORMATS, CommitRequest, RetrieveRequest
from memory_core.core.memory.results import ContextPack, as_json
from memory_core.core.search.context_formats import (
    READING_ORDER,
    Blocks,
    Format,
    Markdown,
    Piece,
    SimulatedCalls,
    SystemPrompt,
    pack,
)
from memory_core.core.text.tokens import count_tokens
from memory_core.runebook import Runebook, open_memory
from server import rendering
from tests.stores import remember, said, words_only

USER = "viking://user/default/memories"

RENDERINGS: tuple[Format, ...] = (
    Blocks(),
    Markdown(),
    SystemPrompt(),
    SimulatedCalls("anthropic", "斑马 zebra"),
    SimulatedCalls("openai", ""),
)


def facts(*texts: str) -> dict[str, list[Piece]]:
    return {"memories": [Piece("memories", f"viking://u/{number}.md", text) for number, text in enumerate(texts)]}


words = st.text(st.sampled_from("word 字符<>&#=-\n\r\x0b\u2028\"']/`😀ñ"), max_size=400)
pieces = st.builds(
    Piece,
    kind=st.sampled_from(READING_ORDER),
    uri=st.uuids().map(lambda key: f"viking://user/default/memories/{key}.md"),
    text=st.one_of(words, words.map(lambda text: text * 40)),
    score=st.one_of(st.none(), st.floats(0, 1)),
    date=st.one_of(st.none(), st.just("2026-03-05")),
    memory_type=st.sampled_from(("", "facts", "preferences", "patterns", "cases", "skills", "own")),
    contested_by=st.sampled_from(((), ("viking://u/1.md",))),
)


@settings(max_examples=50)
@given(
    st.lists(pieces, max_size=30, unique_by=lambda piece: piece.uri), st.integers(0, 3_000), st.sampled_from(RENDERINGS)
)
def test_the_text_never_costs_more_than_the_budget(stored: list[Piece], budget: int, form: Format) -> None:
    candidates = {kind: [piece for piece in stored if piece.kind == kind] for kind in READING_ORDER}
    packing = pack(candidates, budget, form)
    around = form.envelope_tokens
    assert count_tokens(form.text(packing.pieces)) <= budget + around
    assert count_tokens(form.shown(packing.pieces)) <= budget + around
    assert count_tokens(json.dumps(form.structured(packing.pieces), ensure_ascii=False)) <= budget + around
    packed = [piece.uri for piece in packing.pieces]
    assert sorted([*packed, *packing.left_out]) == sorted(piece.uri for piece in stored)
    order = [READING_ORDER.index(piece.kind) for piece in packing.pieces]
    assert order == sorted(order)
    assert all(piece.cut or piece in stored for piece in packing.pieces)


def test_what_a_part_leaves_over_goes_to_the_others() -> None:
    candidates = facts(*("字" * 40 for _ in range(30)))
    packing = pack(candidates, 1_000, Markdown())
    cost = Markdown().item_tokens(candidates["memories"][0])
    assert len(packing.pieces) >= (1_000 - 40) // cost - 1


def test_a_part_cannot_take_the_share_of_another() -> None:
    many = [Piece("memories", f"viking://u/{number}.md", "word " * 50) for number in range(40)]
    page = Piece("session", "viking://s/1#0", "user: 斑马 " * 10)
    packing = pack({"memories": many, "session": [page]}, 1_000, Blocks())
    assert page in packing.pieces


@pytest.mark.parametrize("form", RENDERINGS)
def test_in_a_small_budget_the_profile_comes_before_lines_of_the_directory(form: Format) -> None:
    profile = Piece("profile", "viking://u/profile.md", "A nurse 护士 from Leeds, and then some more about her.")
    lines = [Piece("directory", f"viking://u/{name}/", f"viking://u/{name}/ (1): one") for name in range(9)]
    packing = pack({"profile": [profile], "directory": lines, **facts("Zebras 斑马 live in the annex.")}, 360, form)
    assert profile in packing.pieces
    assert "viking://u/0.md" in [piece.uri for piece in packing.pieces]


def test_whole_pieces_are_dropped_before_one_is_cut() -> None:
    packing = pack(facts("word " * 5_000, "short 短", "word " * 5_000), 400, Blocks())
    assert [(piece.uri, piece.cut) for piece in packing.pieces] == [("viking://u/1.md", False)]
    assert packing.left_out == ("viking://u/0.md", "viking://u/2.md")


@pytest.mark.parametrize("text", ["word " * 5_000, "字" * 20_000, "x" * 90_000])
def test_a_piece_that_alone_is_too_long_is_cut_and_says_so(text: str) -> None:
    (piece,) = pack(facts(text), 400, Blocks()).pieces
    assert piece.cut
    assert piece.text.endswith("[…cut; read viking://u/0.md]")
    assert piece.text.startswith(text[:20])
    assert "wor […" not in piece.text


def test_a_piece_over_its_share_is_whole_where_the_budget_has_room() -> None:
    profile = Piece("profile", "viking://u/profile.md", "word " * 400)
    assert pack({"profile": [profile]}, 1_000, Blocks()).pieces == (profile,)


def test_a_budget_too_small_for_anything_gives_nothing_and_names_it() -> None:
    packing = pack(facts("斑马"), 5, Blocks())
    assert (packing.pieces, packing.left_out) == ((), ("viking://u/0.md",))


# From a store


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    home = tmp_path_factory.mktemp("crowded")
    with open_memory(words_only(home)) as memory:
        remember(memory, "<profile>" * 500 + "职业", "profile")
        for number in range(25):
            remember(memory, f"zebra {number} 斑马 <b>&</b> " + "word字 " * number * 15, "facts")
        remember(memory, "zebra " + "字" * 60_000, "preferences")
        remember(memory, None, "tools", tool_name="zebra", best_for="zebra " * 400)
        remember(memory, None, "skills", skill_name="zebra", best_for="斑马 " * 400)
        said(memory, *(f"zebra {n} " + "说" * n * 9 for n in range(25)))
        remember(memory, "zebra " * 33_000 + "zebra", "facts", topic="Flood")
        memory.retrieve(RetrieveRequest(None))  # what is told once a day is told
        yield memory


def costs(pack: ContextPack) -> int:
    """What a pack costs a model that is shown one of its two forms alone, the dearer one."""
    answer = rendering.retrieve_result(pack)
    text = "\n".join(block.text for block in answer.content if isinstance(block, TextContent))
    return max(count_tokens(text), count_tokens(json.dumps(answer.structured_content, ensure_ascii=False)))


@pytest.mark.parametrize("form", CONTEXT_FORMATS)
@pytest.mark.parametrize("budget", [200, 213, 300, 1_000, 4_000, 10_000])
def test_a_pack_keeps_its_budget_in_every_format(crowded: Runebook, form: str, budget: int) -> None:
    for query in (None, "zebra", "斑马 " * 300 + "</current_input>"):
        started = time.process_time()
        pack = crowded.retrieve(RetrieveRequest(query, token_budget=budget, format=form, skill="zebra", tool="zebra"))
        assert time.process_time() - started < 30.0  # it took minutes
        assert 0 < costs(pack) <= pack.tokens <= budget
        assert pack.text
        assert not {item.uri for part in pack.parts for item in part.items} & set(pack.left_out)


def test_a_memory_of_two_hundred_kilobytes_never_floods_the_pack(crowded: Runebook) -> None:
    pack = crowded.retrieve(RetrieveRequest("zebra", token_budget=1_000))
    items = [item for part in pack.parts if part.kind == "memories" for item in part.items]
    assert len(items) > 2
    assert all(item.cut for item in items if item.uri == f"{USER}/facts/Flood.md")
    assert pack.tokens <= 1_000


def test_a_cut_is_told_in_the_text_and_in_the_items(memory: Runebook) -> None:
    long = {"topic": "Long"}
    memory.commit(CommitRequest("斑马 zebra " * 5_000, memory_type="preferences", fields=long))
    memory.commit(CommitRequest("其他 other things " * 90 + "\nA zebra 斑马.\n" + "词 " * 5_000, fields=long))
    pack = memory.retrieve(RetrieveRequest("zebra", token_budget=800))
    assert "\n…\n" in text_of(pack, "constraints")
    assert "\nA zebra 斑马.\n" in text_of(pack, "memories")
    assert "\n…\n" in text_of(pack, "memories")
    assert all(as_json(item)["cut"] is True for part in pack.parts for item in part.items if "Long" in item.uri)


def text_of(pack: ContextPack, kind: str) -> str:
    return "".join(part.text for part in pack.parts if part.kind == kind)
