"""Words that stand in many memories, whoever keeps them: what a word is worth before a store has taught us better.

SQLite weighs a word by the rows that hold it. In a store of five memories every word is rare, "user" and
"name" as much as "penicillin". So ``FILLER_ROWS`` rows of everyday words are kept beside the documents and counted
with them, each word in about the share of rows that it has among people's memories. A store that grows to hundreds
of documents outweighs them.

Promises: ``filler_texts()`` is the same in every process, ready for FTS5 (Chinese words as the pairs that the
tokenizer stores). Does not: touch a database. The rows must never be hits; whoever searches sees to it.
"""

from __future__ import annotations

from memory_core.scoring.fusion import FILLER_ROWS

#: How extracted memories begin.
_MOST = "user 用户"
_QUARTER = """
day good know make name need new person take thing think time use want way work year place
一个 什么 今天 可以 喜欢 工作 我们 时候 时间 没有 知道 自己 觉得 需要 非常
"""
_EIGHTH = """
always answer best big book call called city company currently date every family favorite favourite feel find first
friend give great help home house job keep kind last life little live long look lot love many month never next number
often old plan prefer project question remember right said say school see start sure talk team today
tomorrow try type week yesterday
一些 一次 一直 一起 上午 上次 下午 东西 两个 事情 今年 公司 准备 去年
可能 名字 告诉 周末 哪个 哪里 回答 因为 地方 多少 妈妈 学校 孩子 家里
已经 希望 应该 开始 怎么 感到 所以 早上 明天 昨天 晚上 最近 朋友 每周
每天 爸爸 现在 老师 计划 记得 问题 项目 先生
"""
_ROWS_OF = ((3 * FILLER_ROWS // 4, _MOST), (FILLER_ROWS // 4, _QUARTER), (FILLER_ROWS // 8, _EIGHTH))


def filler_texts() -> tuple[str, ...]:
    """``FILLER_ROWS`` texts of everyday words, about two dozen words each."""
    rows: list[list[str]] = [[] for _ in range(FILLER_ROWS)]
    start = 0
    for count, words in _ROWS_OF:
        for word in words.split():
            for number in range(count):
                rows[(start + number * FILLER_ROWS // count) % FILLER_ROWS].append(word)
            start += 1
    return tuple(" ".join(words) for words in rows)
