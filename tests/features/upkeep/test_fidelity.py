"""A text that stands for others says what they count, name and deny, and nothing else of the kind; doubt refuses."""

from __future__ import annotations

import pytest

from memory_core.features.upkeep.fidelity import unsaid

#: What a text made of what was said.
REFUSED = """\
Somebody bought it in 2024. <- It was bought by Bob in 2024. | Bob bought it. <- Bob bought it in 2024.
Bob bought it in 2023. <- Bob bought it in 2024. | She likes coriander. <- She does not like coriander.
They do not eat meat but like coriander. <- They do not like coriander. They eat no meat.
他不吃肉，喜欢香菜。 <- 他不喜欢香菜。 | 她不过是喜欢香菜。 <- 她不喜欢香菜。
She is not a nurse. <- She is a nurse. | 在生产环境使用 root 登录。 <- 禁止在生产环境使用 root 登录。
他接受了这个报价。 <- 他拒绝了这个报价。 | 五人参加会议。 <- 三人参加会议。 | 会议开了六小时。 <- 会议开了八小时。
打九折。 <- 打七折。 | 周五开会 <- 周三开会 | 五月三日交付 <- 三月五日交付 | 勿开阀门。 <- 请开阀门。
The freezer is kept at 18 degrees. <- The freezer is kept at -18 degrees.
Rent is €500 a month. <- Rent is $500 a month. | Take 5 g daily. <- Take 5 mg daily.
Room 5 <= 10 people <- Room 5 >= 10 people | Growth was 5 points. <- Growth was 5%.
Give him a dozen tablets. <- Give him one tablet. | Use tabs. Accept cookies. <- Stop using tabs. Refuse cookies.
He works at acme, not at initech. <- He no longer works at acme.
The meeting is on Friday. <- The meeting is on Wednesday.
The third dose is free, the first costs. <- The first dose is free, the third costs.
The valve is closed. <- The valve is open. | 她讨厌喝茶。 <- 她爱喝茶。
Bob is a nurse. He moved to Berlin. <- Bob is a nurse.
He must not leave. He may smoke. <- He may not leave. He must smoke."""
FACTS = (
    "Server A has 16 GB of memory.",
    "服务器C有32GB内存。",
    "The kettle does not whistle. It is red.",
    "用户不喜欢香菜，2024年3月5日说的。",
)


@pytest.mark.parametrize(
    ("text", "originals"),
    [
        (" ".join(FACTS), FACTS),
        ("".join(reversed(FACTS)), FACTS),
        ("服务器C有32GB内存。Server A has 16GB memory. The red kettle does not whistle. " + FACTS[3], FACTS),
        ("Bob has 3 cats and does not like dogs.", ["Bob has 3 cats.", "Bob does not like dogs."]),
        ("小王住在成都，有两只猫。", ["小王有两只猫。", "她住在成都。"]),
        ("她住在成都，不喜欢香菜。", ["她不喜欢香菜。", "住在成都"]),
        ("The dose is 5mg.", ["the dose is 5 mg", "The dose is 5 mg."]),
    ],
)
def test_text_that_keeps_every_fact_stands_for_its_originals(text: str, originals: list[str]) -> None:
    assert unsaid(text, originals) == []


@pytest.mark.parametrize("pair", REFUSED.replace("\n", " | ").split(" | "))
def test_fact_lost_invented_or_reversed_is_refused(pair: str) -> None:
    text, original = pair.split(" <- ")
    assert unsaid(text, [original]) != []
    assert unsaid(original, [original]) == []


@pytest.mark.parametrize(
    ("text", "originals"),
    [
        ("Lin: June 9, Bob: May 3.", ["Lin: May 3", "Bob: June 9"]),
        ("Bob has 5 cats and Lin has 3 cats.", ["Bob has 3 cats.", "Lin has 5 cats."]),
        ("alice never drinks milk, bob never eats meat", ["alice never eats meat", "bob never drinks milk"]),
        ("小王吃素，不喝酒。小李不吃花生。", ["小王不吃花生。", "小李吃素，不喝酒。"]),
        ("小王的生日是6月9日，小李的生日是5月3日。", ["小王的生日是5月3日。", "小李的生日是6月9日。"]),
        ("Cooks do not eat fish, like rice.", ["Do not like rice.", "Cooks eat fish."]),
        ("厨师不吃鱼，喜欢饭。", ["不喜欢饭。", "厨师吃鱼。"]),
        (
            "Bob moved to Leeds. Lin never eats meat. Lin moved to York. Never drinks milk.",
            ["Bob moved to Leeds. Never eats meat.", "Lin moved to York. Never drinks milk."],
        ),
        (
            "Bob's card. He has 3 cats. He never drinks. Lin's card. He has 5 cats. He never eats meat.",
            ["Bob's card. He has 3 cats. He never eats meat.", "Lin's card. He has 5 cats. He never drinks."],
        ),
    ],
)
def test_facts_that_change_their_owner_are_refused(text: str, originals: list[str]) -> None:
    assert unsaid(text, originals) != []
    assert unsaid("\n\n".join(originals), originals) == []


@pytest.mark.parametrize("heading", ["Never do this:", "## Forbidden on Fridays", "严禁："])
def test_heading_that_turns_what_follows_is_never_left_to_a_model(heading: str) -> None:
    rules = [f"{heading}\n- open valve hot", "restart the pump when cold"]
    assert unsaid("\n".join(rules), rules) != []
    assert unsaid("Pump:\n- restart the pump when cold", ["Pump:\n- restart the pump when cold"]) == []


def test_what_is_missing_and_what_was_made_up_is_named() -> None:
    missing = unsaid("She bought it in 2023.", ["It was bought by Bob in 2024."])
    assert {"2024", "bob", "not: 2023"} <= set(missing)
