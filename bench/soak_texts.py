"""What a soak's actors write: English and Chinese texts, each with a marker word of its own, and themes with questions.

A theme is asked for in other words than it was told in; the texts around it are all of shelves and what lies on them.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

_LETTERS = "bcdfghjklmnpqrstvwxz"
_HAN = "琥珀蜻蜓琉璃麒麟珊瑚杜鹃鹧鸪茉莉蔷薇枇杷琵琶芙蓉牡丹翡翠玛瑙玳瑁蝴蝶蜘蛛骆驼鸳鸯凤凰蟋蟀蚂蚁"
#: A prime, so that two numbers never have one word.
_SPREAD = 2_654_435_761
_THINGS = ("lamps", "ropes", "tiles", "drums", "bolts", "cables", "crates", "hinges", "valves", "jars")
_THINGS_HAN = ("灯泡", "绳子", "瓷砖", "鼓", "螺栓", "电缆", "木箱", "铰链", "阀门", "罐子")


class Theme(NamedTuple):
    """A memory, and a question that means the same in words mostly other than its own."""

    told: str
    asked: str


THEMES = (
    Theme("I am allergic to peanuts.", "am I allergic to any nuts?"),
    Theme("Our dog is a black labrador called Bruno.", "what kind of pet dog do we have?"),
    Theme("My daughter plays the violin in the school orchestra.", "what musical instrument does my child practise?"),
    Theme("The dentist appointment is on Tuesday.", "seeing the doctor about my teeth"),
    Theme("The flight to Tokyo leaves at noon.", "what time does my plane to Japan depart?"),
    Theme("My wife's birthday is in October.", "when was my spouse born?"),
    Theme("我对海鲜过敏。", "我不能吃虾和螃蟹吗？"),
    Theme("我女儿每个周末学钢琴。", "孩子在学习什么乐器？"),
    Theme("我最喜欢的菜是麻婆豆腐。", "我爱吃什么食物？"),
    Theme("我家养了一只橘猫，叫豆豆。", "我有什么宠物？"),
    Theme("我们去年从上海搬到了成都。", "我搬家去了哪里？"),
    Theme("我妻子的生日在十月。", "老婆什么时候出生的？"),
    Theme("牙医预约在星期二。", "什么时候去看牙齿？"),
    Theme("我的手机坏了，正在修理。", "电话有什么问题？"),
)


def marker(number: int, *, chinese: bool) -> str:
    """A word that no other number has: Latin letters, or six Chinese characters."""
    alphabet = _HAN if chinese else _LETTERS
    # Spread: words of neighbouring numbers must not be alike, nor be one letter over and over.
    number = number * _SPREAD % len(alphabet) ** 6
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, len(alphabet))
        digits = alphabet[digit] + digits
    return digits if chinese else f"zq{digits}"


def shelf(random: Random, word: str, *, chinese: bool) -> str:
    """One sentence around a marker."""
    hall, place = random.randint(1, 99), random.randint(100, 999)
    if chinese:
        return f"{hall}号库房第{place}号架子上放着{word}牌{random.choice(_THINGS_HAN)}。"
    return f"Shelf {place} of hall {hall} holds {word} {random.choice(_THINGS)}."
