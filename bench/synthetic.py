"""Made-up memories, conversations and questions, English and Chinese, for benches that need many.

Owns sentences that are all different and read like what people keep: people, places, things, numbers and dates in
ordinary sentences, with a vocabulary that grows with the store. The same seed makes the same texts. Holds nothing
of any data set.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


_SYLLABLES = _listed(
    "ba|da|ka|la|ma|na|ra|sa|ta|va|bel|dor|fen|gar|hin|jor|kel|lim|mor|nas|pel|rin|sol|tur|vel|win|zan"
)
_SURNAMES = "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦许何吕施张孔曹严华金魏陶姜"
_GIVEN = "伟芳娜敏静丽强磊洋勇艳杰涛明超霞平刚桂英文辉玲红宇晨欣怡浩然子涵雨婷思远佳琪"
_THINGS = _listed(
    "the billing service|the garden fence|a second-hand piano|the quarterly report|the night train|her grandmother's "
    "recipe|the login page|a leaking roof|the marathon plan|the camera lens|the translation memory|an espresso machine|"
    "the lease|the backup script|a pottery course|the solar panels|the tax return|the school play|a broken zipper|the "
    "customer survey|the hiking map|the database migration|a chess opening|the allotment|the rehearsal room|the new "
    "intern|a vaccination|the projector|the wedding toast|the kitchen tiles|an old bicycle|the release notes|the "
    "aquarium|a podcast episode|the insurance claim|the ferry tickets|the choir|a parking permit|the data warehouse"
)
_DEEDS = _listed(
    "postponed|finished|asked twice about|is responsible for|sold|borrowed|complained about|took photographs of|"
    "wrote a long letter about|cancelled|repaired|insured|gave up on|praised|forgot|redesigned|measured|reviewed"
)
_CAUSES = _listed(
    "because the budget was cut|after a talk with the neighbours|since the supplier went bankrupt|although nobody had "
    "asked|before the holidays began|while the office was being painted|as the doctor had advised|to save some time|"
    "when the old contract ran out|without telling the others|so that the children could join|despite the rain"
)
_PLACES = _listed(
    "Porto|Lyon|Osaka|Tartu|Leeds|Quito|Accra|Bergen|Austin|Tbilisi|Perth|Kraków|Izmir|Hanoi|Cork|Split|Utrecht|Graz"
)
_ZH_THINGS = _listed(
    "账单服务|花园的篱笆|二手钢琴|季度报告|夜班火车|外婆的菜谱|登录页面|漏水的屋顶|马拉松计划|相机镜头|翻译记忆库|"
    "咖啡机|租房合同|备份脚本|陶艺课|太阳能板|报税表|学校话剧|客户问卷|徒步地图|数据库迁移|围棋定式|排练室|"
    "新来的实习生|疫苗接种|投影仪|婚礼致辞|厨房瓷砖|旧自行车|发布说明|鱼缸|播客节目|保险理赔|船票|合唱团|停车证"
)
_ZH_DEEDS = _listed(
    "推迟了|完成了|问过两次|负责|卖掉了|借走了|抱怨过|拍了很多|取消了|修好了|重新设计了|忘记了|检查了|称赞了"
)
_ZH_CAUSES = _listed(
    "因为预算被削减|跟邻居谈过以后|由于供应商破产|虽然没有人提过|在放假之前|趁办公室粉刷的时候|按照医生的建议|"
    "为了节省时间|旧合同到期之后|没有告诉其他人|好让孩子们也能参加|尽管下着雨"
)
_ZH_PLACES = _listed("成都|杭州|哈尔滨|厦门|西安|昆明|青岛|苏州|长沙|兰州|桂林|大连|南京|拉萨|三亚|温州")
_ROUTINE = ("How did it go?", "I see.", "后来怎么样了?", "Shall I note that?", "好的,记住了。", "Good to know.")
_CHINESE_SHARE = 0.3
_FIRST_DAY = date(2021, 1, 1)
_DAYS = 1_900
#: Types a memory is spread over, with the field that names it.
_TYPES = (
    ("notes", "title"),
    ("facts", "topic"),
    ("preferences", "topic"),
    ("entities", "entity_name"),
    ("events", "event_name"),
    ("cases", "case_name"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """One made-up statement.

    Attributes:
        name: A few words that name it, different for every number.
        text: The statement.
        question: What somebody would ask who remembers only part of it.
        day: When it was said.
    """

    name: str
    text: str
    question: str
    day: date


def told(number: int) -> Told:
    """Statement ``number``; the same for the same number."""
    chance = random.Random(number)
    day = _FIRST_DAY + timedelta(days=chance.randrange(_DAYS))
    if chance.random() < _CHINESE_SHARE:
        who = chance.choice(_SURNAMES) + "".join(chance.sample(_GIVEN, 2))
        thing, other, place = chance.choice(_ZH_THINGS), chance.choice(_ZH_THINGS), chance.choice(_ZH_PLACES)
        deed, cause = chance.choice(_ZH_DEEDS), chance.choice(_ZH_CAUSES)
        text = (
            f"{who}{deed}{thing},{cause}。地点在{place},编号{number},花了{chance.randrange(20, 9_000)}元;"
            f"之后还要处理{other}。"
        )
        return Told(f"{who}和{thing} {number}", text, f"{who}在{place}为什么{deed}{thing}?", day)
    who = "".join(chance.choices(_SYLLABLES, k=chance.randint(2, 3))).capitalize()
    thing, other, place = chance.choice(_THINGS), chance.choice(_THINGS), chance.choice(_PLACES)
    deed, cause = chance.choice(_DEEDS), chance.choice(_CAUSES)
    text = (
        f"{who} {deed} {thing} in {place} {cause}; ticket {number}, {chance.randrange(20, 9_000)} euros. "
        f"Next comes {other}, with {''.join(chance.choices(_SYLLABLES, k=2)).capitalize()}."
    )
    return Told(f"{who} and {thing} {number}", text, f"Why has {who} {deed} {thing} in {place}?", day)


def write_operation(number: int) -> dict[str, Any]:
    """A ``WriteOp`` of statement ``number``, of one of the types in turn."""
    statement = told(number)
    memory_type, key = _TYPES[number % len(_TYPES)]
    fields = {key: statement.name, "content": statement.text}
    if memory_type == "events":
        fields["event_time"] = statement.day.isoformat()
    return {"memory_data": {"memory_type": memory_type, "fields": fields}}


def conversation(first: int, turns: int) -> Iterator[dict[str, Any]]:
    """Messages of two speakers; every other one tells a statement, from ``first`` on."""
    begun = told(first).day
    for turn in range(turns):
        statement = told(first + turn // 2)
        routine = _ROUTINE[(first + turn) % len(_ROUTINE)]
        yield {
            "role": "user" if turn % 2 == 0 else "assistant",
            "content": statement.text if turn % 2 == 0 else routine,
            "time": f"{begun.isoformat()}T10:{turn % 60:02}:00Z",
        }
