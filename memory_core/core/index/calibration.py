"""What a model's cosines mean, measured on sentences whose relation is known.

Owns two small lists, in English and in Chinese: sentences of everyday memory that have nothing to do with each
other, and the same things said in other words. Models differ widely here: unrelated texts score about .1 with
one family and .78 with another. The bundled model, on which thresholds were chosen, is the yardstick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memory_core.core.index.encoder import Scale
from memory_core.core.search.fusion import Calibration

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


#: (statement, the same in other words); statements of different pairs are unrelated.
_ENGLISH = (
    ("My sister moved to Chengdu last spring.", "Last spring my sister relocated to Chengdu."),
    ("The deploy script needs Python 3.11 or newer.", "To run the deployment script you need at least Python 3.11."),
    ("I can't eat peanuts, they make me ill.", "Peanuts make me sick, so I have to avoid them."),
    ("We painted the kitchen yellow.", "Our kitchen walls are yellow now; we did the painting ourselves."),
    ("He plays the cello in an amateur orchestra.", "He is a cellist in an orchestra of amateurs."),
    ("The quarterly report is due on Friday.", "Friday is the deadline for the quarterly report."),
    ("Their dog is afraid of thunder.", "Thunderstorms scare their dog."),
    ("She is training for a marathon.", "She prepares to run a marathon."),
    ("The hotel lost our luggage in Lisbon.", "In Lisbon the hotel misplaced our bags."),
    ("Tomatoes grow well on the balcony.", "The balcony is a good place for growing tomatoes."),
    ("I prefer short answers without emoji.", "Please keep replies brief and leave out emojis."),
    ("The car broke down near the bridge.", "Close to the bridge our car stopped working."),
)
_CHINESE = (
    ("我妹妹去年春天搬到了成都。", "去年春天，我的妹妹搬去成都住了。"),
    ("部署脚本需要 Python 3.11 以上的版本。", "要运行部署脚本，Python 至少要是 3.11 版。"),
    ("我不能吃花生，吃了会过敏。", "我对花生过敏，所以不吃。"),
    ("我们把厨房刷成了黄色。", "厨房的墙现在是黄色的，是我们自己刷的。"),
    ("他在业余乐团里拉大提琴。", "他是一个业余乐团的大提琴手。"),
    ("季度报告星期五要交。", "星期五是提交季度报告的最后期限。"),
    ("他们家的狗害怕打雷。", "一打雷，他们家的狗就很害怕。"),
    ("她正在为马拉松做训练。", "她在训练，准备跑马拉松。"),
    ("酒店在里斯本把我们的行李弄丢了。", "在里斯本，我们的行李被酒店弄丢了。"),
    ("阳台上的番茄长得很好。", "阳台很适合种番茄。"),
    ("我喜欢简短的回答，不要表情符号。", "回答请简短一些，别用表情符号。"),
    ("车在大桥附近抛锚了。", "我们的车在桥边坏了，开不动了。"),
)
#: How far from "unrelated" to "the same in other words" texts may be about the same thing: where the bundled model
#: has its ``near``.
_NEAR_SHARE = 0.7

#: Texts to vectors float32 (n, dim), L2-normalised.
Embed = Callable[[Sequence[str]], "npt.NDArray[np.float32]"]


def measure_scale(embed: Embed) -> Scale:
    """Embed both lists and read off the model's scale.

    A model that knows one language only is measured in that one: its cosines of the other mean nothing.

    Args:
        embed: The model, encoding as it encodes stored texts.
    """
    unrelated, same = max(
        (_cosines(embed, pairs) for pairs in (_ENGLISH, _CHINESE)), key=lambda found: found[1] - found[0]
    )
    near = unrelated + _NEAR_SHARE * (same - unrelated)
    return Scale(zero=Calibration.from_unrelated(unrelated).zero, near=round(min(max(near, 0.0), 0.99), 3))


def _cosines(embed: Embed, pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Mean cosines of unrelated statements, and of those that say the same."""
    said, again = embed([pair[0] for pair in pairs]), embed([pair[1] for pair in pairs])
    every = said @ again.T
    same = float(every.diagonal().mean())
    count = len(pairs)
    return (float(every.sum()) - same * count) / (count * (count - 1)), same
