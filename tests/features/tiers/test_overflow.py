"""How two texts are compared while exchanges of a session are sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from memory_core.core.index.encoder import Embedder, Scale
from memory_core.features.tiers import overflow
from memory_core.features.tiers.overflow import TextLikeness


class Interrupted:
    """A model that, asked for a text, lets another thread compare others first."""

    fingerprint, scale = "interrupted", Scale(0.0, 0.5)

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], object]] = []

    def ready(self, timeout_seconds: float = 0.0) -> bool:  # noqa: ARG002 - the protocol has it
        return True

    def embed(self, texts: Sequence[str]) -> Any:
        while self.meanwhile:
            self.meanwhile.pop()()
        return np.asarray([[1.0, 0.0] if "temple" in text else [0.0, 1.0] for text in texts], np.float32)


def test_texts_that_another_thread_compares_meanwhile_push_none_out_of_a_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overflow, "_REMEMBERED", 2)
    model = Interrupted()
    alike = TextLikeness(lambda: cast("Embedder", model)).of(1)
    assert alike("a temple", "a payment") == 0.0
    model.meanwhile.append(lambda: alike("支付", "回调"))
    assert alike("a temple", "the temple 寺庙") == 1.0
