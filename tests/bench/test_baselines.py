"""The baselines are what they are called, in both languages."""

from __future__ import annotations

import pytest

from bench.baselines import EncoderBaseline, LexicalBaseline
from bench.corpus import Passage
from memory_core.core.index.encoder import BundledEmbedder

SAID = {
    "kiln": "The kiln arrives from Limoges in April.",
    "bread": "我在昆明开了一家面包店。",
    "sail": "My sailing licence came through.",
    "dog": "The puppy chewed my slippers.",
}
PASSAGES = [Passage(name, "s", text, (text,)) for name, text in SAID.items()]


def test_words_find_stems_and_character_pairs_and_nothing_else() -> None:
    with LexicalBaseline(PASSAGES) as lexical:
        assert lexical.search("Who has a sail licence?", 10) == ["sail"]
        assert lexical.search("昆明的面包", 10) == ["bread"]
        assert lexical.search("my licence", 10) == ["sail"]
        assert lexical.search("slippers that my puppy chewed in April", 10) == ["dog", "kiln"]
        assert lexical.search("a small canine", 10) == []
        assert lexical.search("?!", 10) == []


def test_meaning_ranks_all_and_finds_what_shares_no_word() -> None:
    encoder = EncoderBaseline(PASSAGES, BundledEmbedder())
    assert encoder.search("a small canine destroyed the shoes", 10)[0] == "dog"
    assert encoder.search("Where is the bakery in China?", 1) == ["bread"]
    assert sorted(encoder.search("anything", 10)) == sorted(SAID)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_passage_of_several_pieces_is_one_hit(pieces: int) -> None:
    long = Passage("long", "s", "x", tuple(f"The puppy chewed slipper {at}." for at in range(pieces)))
    encoder = EncoderBaseline([long, *PASSAGES[:2]], BundledEmbedder())
    assert encoder.search("puppy slipper", 10) == ["long", *encoder.search("puppy slipper", 10)[1:]]
    assert len(encoder.search("puppy slipper", 10)) == 3
