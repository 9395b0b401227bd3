"""Whether a text tells the assistant how to answer or to work: "never use bullet points", 回答先说结论.

The table beside this module holds the words of both languages. Strict cues (an order: "always …", "you should …",
不要 …, 务必 …) count in any text. In a preference or a rule, which are somebody's wishes, plain ones do as well: an
imperative ("keep answers short"), what somebody wants of answers, or a name such as "answer style". A wrong yes costs
a few words of context, a wrong no costs the rule. Pure.
"""

from __future__ import annotations

import re

from memory_core.core.text.language import sentences
from memory_core.core.text.word_table import cued_patterns

#: Rules are short; of a longer text the beginning tells.
_READ_CHARS = 2_000


def is_directive(text: str, *, plain: bool) -> bool:
    """Whether any sentence directs the assistant.

    Args:
        text: A memory's name and text.
        plain: Whether plain cues count, too: for preferences and rules.
    """
    said = sentences(text[:_READ_CHARS])
    return any(
        pattern.compiled.search(sentence)
        for pattern in cued_patterns(__file__, "strict", re.IGNORECASE)
        + (cued_patterns(__file__, "plain", re.IGNORECASE) if plain else ())
        for sentence in said
    )
