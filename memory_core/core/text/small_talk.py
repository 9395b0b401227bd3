"""Whether a message is small talk, for which nothing needs to be recalled.

Small talk is a message made of nothing but greetings, thanks, acknowledgements, goodbyes, laughter and emoji. One
word beyond them, a name, a number, a request ("ok do it", 继续) or an answer ("yes", 可以) and it is not: a recall that
was not needed costs little, one that is missing costs the answer. Owned here: the phrases. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from memory_core.core.text.normalization import simplified

_LIMIT_CHARS = 160
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+")
#: Spelt with as many letters as the mood asks for.
_DRAWN_OUT = re.compile(
    r"(?:ha){2,}h?|(?:he){2,}|(?:hi){2,}|h{2,}|h+m+|m{2,}(?:h+m+)?|mhm+|l+o+l+|lmao+|rofl|o+h+|a+h+|a+w{2,}|wo+w+|y+a{2,}y+"
    r"|ya+y|x+d+|o+k+|o+k+a+y+|hi+|he+y+|hello+|thanks+|bye+|coo+l|phew|ooh+|yep+ee|whoa+|woo+h?oo+"
)
#: Phrases that ask, but for nothing that is stored.
_QUESTIONS = (
    "how are you|how are you doing|how are you today|how are you doing today|hows it going|how is it going|whats up|sup"
    "|how do you do|hows your day|how have you been|你好吗|你还好吗"
    "|在吗|在么|在不在|您在吗|你在吗|最近好吗|最近怎么样|吃了吗|还好吗"
)
_ENGLISH = (
    "hi|hello|hey|hiya|howdy|yo|greetings|good morning|good afternoon|good evening|good night|good day|morning"
    "|goodnight|nice to meet you|pleased to meet you|welcome back"
    "|thanks|thank you|thx|ty|tysm|tks|cheers|many thanks|much appreciated|appreciate it|i appreciate it"
    "|okay|k|kk|okey|okie|alright|all right|got it|gotcha|understood|i see|i understand|makes sense|that makes sense"
    "|sounds good|sounds great|sounds perfect|cool|nice|great|awesome|perfect|wonderful|excellent|amazing|lovely"
    "|brilliant|fantastic|superb|neat|good|very good|very nice|good to know|fine|good job|great job|well done|nice work"
    "|great work|nice one|good work|no problem|no worries|np|youre welcome|you are welcome|my pleasure|never mind"
    "|nevermind|thats great|thats good|thats nice|thats fine|thats perfect|thats awesome|thats cool|that is great"
    "|thats wonderful|thats lovely|that helps|that helped|that was helpful|very helpful|so helpful|so nice|so good"
    "|youre the best|you are the best|youre awesome|im fine|im good|im ok|you too|same to you|congrats|congratulations"
    "|bye bye|goodbye|good bye|see you|see ya|cya|see you later|see you soon|see you tomorrow|see you around|take care"
    "|farewell|talk to you later|talk to you soon|talk later|talk soon|ttyl|have a good day|have a nice day"
    "|have a great day|have a good one|have a great one|have a good night|have a nice evening|have a good evening"
    "|have a good weekend|have a nice weekend|have a great weekend|have fun|good luck|sweet dreams|sleep well"
)
_CHINESE = (
    "你好|您好|你们好|大家好|嗨|哈喽|哈啰|嘿|早|早安|早上好|上午好|中午好|下午好|晚上好|晚安|早啊|你好呀|幸会|好久不见"
    "|谢谢|多谢|谢啦|谢了|感谢|非常感谢|十分感谢|太感谢了|万分感谢|谢谢你|谢谢您|谢谢大家|感谢你|感谢您|谢谢你的帮助|感谢帮助"
    "|感激不尽|多谢你|多谢了|谢谢了|谢谢啦|真的谢谢|真是谢谢你|麻烦你了|麻烦您了|有劳了"
    "|好|好的|好哒|好滴|好嘞|好咧|好啦|好了|好吧|好呀|好啊|好哦|好好|那好|那好的|那好吧|那就好|行|中|嗯|恩|噢|哦|喔|啊|呀|哇|诶|唉|哎"
    "|明白|明白了|我明白了|了解|了解了|知道了|我知道了|收到|懂了|我懂了|原来如此|这样啊|原来这样|原来是这样|是这样啊|有道理"
    "|没问题|没事|没事的|没关系|不客气|不用谢|不谢|不用客气|客气了|辛苦|辛苦了|你辛苦了|您辛苦了|大家辛苦了"
    "|太好了|太棒了|真棒|真好|不错|很好|非常好|很棒|好棒|厉害|真厉害|太厉害了|牛|赞|点赞|完美|太赞了|很不错|挺好|挺好的|真不错|优秀"
    "|再见|拜|拜拜|回头见|明天见|下次见|回见|改天聊|回聊|下次聊|改天见|保重|慢走|周末愉快|节日快乐|新年快乐|恭喜|恭喜恭喜|祝你愉快"
    "|做个好梦|早点休息|哈|呵呵|嘻嘻|嘿嘿|嘻|呵|哟|啦|咯|哎呀|哎哟"
)
_GREETED = "there|all|everyone|everybody|guys|folks|again|team|friend|my friend|buddy|mate"
_THANKED = (
    "a lot|a bunch|a ton|a million|again|so much|very much|so very much|for your help|for the help|for everything"
    "|for your time|for helping|for helping me|for that|for this|for all your help|much|everyone|all"
    "|guys|mate|buddy|friend"
)


def is_small_talk(text: str) -> bool:
    """Whether ``text`` says nothing but hello, thanks, fine or goodbye; blank text does not even say that."""
    if len(text) > _LIMIT_CHARS or not text.strip():
        return False
    read = simplified(unicodedata.normalize("NFKC", text)).casefold().replace("’", "'").replace("'", "")
    if any(character.isnumeric() and not "\u3400" <= character <= "\u9fff" for character in read):
        return False
    tokens = _TOKEN.findall(read)
    asks = "?" in read
    if not tokens:
        return not asks
    if tokens[0] == "and" or tokens[-1] == "and":
        return False
    return _made_of_phrases(tokens, asks=asks)


def _made_of_phrases(tokens: list[str], *, asks: bool) -> bool:
    """Whether the tokens fall into known phrases; ``asks``: one of them a question, which a question mark needs."""
    #: Ends of sequences of phrases, and whether a question was among them.
    reached = {(0, False)}
    for start in range(len(tokens)):
        for asked in (True, False):
            if (start, asked) not in reached:
                continue
            if tokens[start] == "and" or _DRAWN_OUT.fullmatch(tokens[start]):
                reached.add((start + 1, asked))
            for length in range(1, min(_LONGEST, len(tokens) - start) + 1):
                phrase = tuple(tokens[start : start + length])
                if phrase in _PHRASES:
                    reached.add((start + length, asked or phrase in _ASKING))
    end = len(tokens)
    return (end, True) in reached or (not asks and (end, False) in reached)


def _split(phrases: Iterable[str]) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(_TOKEN.findall(phrase)) for phrase in phrases)


def _with_tails(heads: Iterable[str], tails: str) -> list[str]:
    return [f"{head} {tail}" for head in heads for tail in tails.split("|")]


_ASKING = _split(_QUESTIONS.split("|"))
_PHRASES = _ASKING | _split(
    [
        *_ENGLISH.split("|"),
        *_CHINESE.split("|"),
        *_with_tails(("hi", "hello", "hey", "good morning", "good evening", "good night", "bye"), _GREETED),
        *_with_tails(("thanks", "thank you", "thx", "many thanks"), _THANKED),
    ]
)
_LONGEST = max(map(len, _PHRASES))
