"""Corrections of the user, recognised by cues in English and Chinese.

A cue ("from now on use …", 下次不要…) counts only where the user speaks to the agent: at the head of a sentence or
clause, followed by what an agent does. Precision comes first: "I never eat fish", "next time we meet" and
从现在起我是学生了 are no corrections, and code, quotations, logs and texts that were handed over to be worked on are
not looked at. With a model the finds are hints for its prompt; without one they are kept verbatim as rules. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.operations import MemoryData, WriteOp
from memory_core.core.text.language import language_of, prose, sentences

SOURCE_KIND = "user_explicit"
SALIENCE = 0.8
_TEXT_LIMIT_CHARS = 600
_ABOUT_LIMIT_CHARS = 200
_HINT_LIMIT_CHARS = 240
_PER_COMMIT_LIMIT = 20
#: Of a message longer than this only first and last lines can be the user's own words to the agent.
_OWN_WORDS_CHARS = 1_500
_OWN_WORDS_LINES = 3

#: Line that says what the correction was about, by language.
_ABOUT = {"en": "Said in reply to: {turn}", "zh": "针对的回复：{turn}"}

_DO = (
    r"(?:use|write|run|check|ask|show|give|answer|reply|respond|put|add|include|format|start|begin|end|avoid|commit"
    r"|push|test|read|call|search|explain|send|return|create|save|leave|skip|confirm|translate|double[- ]check|verify"
    r"|delete|remove|change|modify|edit|touch|rename|install|import|merge|deploy|refactor|rewrite|print|log|omit|"
    r"quote"
    r"|cite|summari[sz]e|list|name|assume|guess|invent|make up|hard-?code|repeat|apologi[sz]e|mention|suggest|"
    r"generate"
    r"|produce|prefer|stick to|keep (?:it|your|the|to|answers?|replies|responses|commits|code)"
    r"|make (?:sure|it|your|them)|be (?:brief|concise|shorter|more|less|careful)|do (?:it|that|this)|tell me"
    r"|let me know|look (?:at|up|in)|wait for|provide|output|speak|address me|refer to|follow|ignore)\b"
)
_NOT = r"(?:(?:please )?(?:don['’]?t|do not)|never|no longer|stop|you must not|you should(?: not|n['’]t))"
_DOING = (
    r"(?:using|adding|writing|apologi[sz]ing|asking|calling|changing|creating|committing|deleting|removing|repeating"
    r"|explaining|guessing|making (?:things )?up|inventing|assuming|editing|rewriting|reformatting|truncating|pushing"
    r"|hard-?coding|summari[sz]ing|translating|suggesting|putting|giving me|sending me|touching|ignoring)\b"
)
_HEAD = (
    r"^(?:(?:ok(?:ay)?|no|nope|hey|and|but|so|also|oh|well|yes|great|thanks|thank you|please|again)\b[,.!]?\s+){0,3}"
)
_TO_AGENT = (
    r"(?:please|you (?:should|must|need to|have to|can|may|will)"
    r"|i(?:['’]d| would)? (?:want|like|need|expect|prefer) you"
    rf"|(?:always (?:please )?|only |just |{_NOT} (?:ever |always )?)?(?={_DO}))"
)
_SAID = r"\bI(?:['’]ve| have)?(?: already)? (?:told|asked) you"
_WRONGLY = r"(?:that|this|it)(?:['’]s| is| was)"
_ENGLISH = {
    "don't do that again": (
        rf"{_HEAD}(?:don['’]?t|do not|never)(?: you)?(?: ever)? (?:do (?:that|this|it|so)|{_DO}[^.;]{{0,80}})"
        rf" (?:again|any ?more|ever again)\b(?! yet)|{_HEAD}(?:don['’]?t|do not) ever {_DO}"
    ),
    "next time": (
        rf"{_HEAD}(?:the )?next time,? (?:around,? )?{_TO_AGENT}"
        rf"|{_HEAD}(?:{_NOT} (?:ever )?|please |always ){_DO}[^.;]{{0,100}} next time\b"
    ),
    "from now on": (
        rf"{_HEAD}(?:from (?:now|here) on|(?:going|moving) forward|henceforth|from this point on),? {_TO_AGENT}"
        rf"|{_HEAD}(?:{_NOT} (?:ever )?|please (?:always )?|always |only )?{_DO}[^.;]{{0,100}}"
        r" (?:from now on|going forward)\W*$"
    ),
    "in future": rf"{_HEAD}in (?:the )?future,? {_TO_AGENT}",
    "always": (
        rf"{_HEAD}(?:you (?:should|must) )?always "
        rf"(?!(?:keep|be|look|start|end|tell|let|follow|speak|make|give)\b){_DO}"
    ),
    "never": (
        rf"{_HEAD}(?:you (?:should|must) )?never (?:ever )?"
        rf"(?!(?:keep|be|look|wait|start|let|ask for|speak|do|give)\b){_DO}"
    ),
    "stop doing": (
        rf"{_HEAD}(?:can you |could you |will you |just )?"
        rf"stop (?:(?:doing|saying) (?:that|this|it|so)\b|{_DOING})"
    ),
    "I told you": (
        rf"{_SAID} (?:already |before |twice |repeatedly |\w+ times )?(?:not|never) to\b|{_SAID} to (?={_DO})"
        rf"|{_SAID} (?:twice|repeatedly|(?:many|several|two|three) times)\b"
        rf"|\b(?:as|like) I (?:already )?(?:told|asked) you(?: before)?, (?:don|do not|never|use|always)"
    ),
    "that's wrong": (
        rf"\b{_WRONGLY} (?:all |just |still |completely |simply )?(?:wrong|incorrect|not (?:right|correct))\b"
        r"[^.!?]{0,40}(?:[.,;:!—-]+|\bbecause\b) *(?:it|this|that|the \w+|you)(?: \w+)? (?:should|must|needs?|"
        r"ought)\b"
        rf"|\b{_WRONGLY} not what I (?:asked|meant|wanted|said)\b"
        r"|^you should(?:n['’]t| not) have "
        r"(?:used|deleted|changed|removed|written|added|committed|pushed|edited|run|assumed)\b"
    ),
    "please remember": (
        r"^(?:(?:ok(?:ay)?|no|and|so|also)\b[,.]? +)?(?:please|pls) (?:always )?remember "
        r"(?:that (?:I(?:['’]m)? |my |we (?:use|do|don)|our |the |you )|my |our (?!time|trip)"
        rf"|to (?:always |never )?{_DO}|never to |not to |:|this:)"
        rf"|^(?:can|could|will|would) you (?:please )?remember (?:that (?:I |my )|my |to (?:always )?{_DO})"
        r"|^(?:please )?remember(?: this)?: "
    ),
}
_ZH_DO = (
    r"(?:用|写|改|删|加(?!班|油|倍)|提交|运行|执行|调用|检查|测试|确认|问我|告诉我|回答|回复|答复|输出|生成|翻译|"
    r"解释|搜索|查"
    r"|读|保存|创建|使用|采用|修改|删除|添加|推送|合并|部署|格式|命名|称呼|叫我|给我|发给我|列|标|按|省略|重复"
    r"|道歉|猜|编造|自作主张|擅自|自动|随便|直接|先|把|这样|那样|这么|那么|犯|出现|忘记?了?(?:先|加|写|用)|注释"
    r"|简洁|简短)"
)
_ZH_NOT = r"(?:不要|别|不准|不许|不用|不必|无需|不能|禁止|勿|请勿|少)"
_ZH_MUST = r"(?:务必|必须|一律|统一|都要|都得|都请|都用|都按|一定要|记得|记住|要|得|应该|应当|只能?|就|都)"
_ZH_HEAD = (
    r"(?:^|[，,；;：:、]\s*)(?:(?:好的?|不对|不是|能不能|可不可以|那么?|所以|另外|还有|请|麻烦|拜托|希望|你|您|嗯"
    r"|对了|行)[，,]?\s*){0,3}"
)
_ZH_ORDER = (
    rf"(?:[^。，,]{{1,12}}(?:之前|前|时|的时候)[，,]?)?(?:你|您)?(?:请|麻烦|希望你|(?:也|都|就)?{_ZH_NOT}(?:再|"
    rf"总是?|老是?)?{_ZH_DO}|{_ZH_MUST}(?:请|先)?{_ZH_DO}"
    rf"|每次(?:都|要|请|先)|直接{_ZH_DO}|先(?:{_ZH_DO}|看|跑)|回答|回复|用(?!心|功|力)|叫我|称呼我)"
)
_ZH_INSTEAD = r"不是[^。！？]{1,40}(?:而是|[，,]\s*是)"
_CHINESE = {
    "下次不要": rf"{_ZH_HEAD}下一?次再?[，,]?(?:{_ZH_ORDER}|再?遇到[^。]{{0,30}}(?:先|不要|别|要|请))",
    "以后": rf"{_ZH_HEAD}(?:以后|往后)[，,]?{_ZH_ORDER}",
    "别再": rf"{_ZH_HEAD}(?:别|不要|不许|请勿)(?:总是?|老是?|给我)?再(?:次|总是?|老是?|给我)?{_ZH_DO}",
    "记住": (
        rf"{_ZH_HEAD}(?:要|一定要|帮我|给我)?记住(?:了?[：:]\s*\S|了?[，,]?\s*(?:这一?点)?[，,：:]?\s*(?:以后|"
        rf"下次|每次|必须|务必"
        rf"|一律|永远(?:不要|别)|{_ZH_NOT}{_ZH_DO}|要先?{_ZH_DO}|我(?:的|是|叫|用|喜欢|不|只|住|们)))"
    ),
    "从现在起": rf"{_ZH_HEAD}(?:从现在(?:起|开始)|从今(?:以后|往后|天起)|今后|此后|从此以后)[，,]?{_ZH_ORDER}",
    "我说过": (
        r"(?:我(?:不是|早就|已经|之前|都)?(?:跟你|和你|对你)?(?:说|告诉|讲|强调)[过了]你?了?"
        r"|(?:跟你)?(?:说|讲|强调)[过了](?:多少|很多|好几|好多|几)[次遍]了?)"
        rf"[，,]?(?:{_ZH_NOT}|要用|要先|必须|只能?)"
    ),
    "不是…而是…": (
        rf"(?:不对|错了|不正确|搞错|弄错|理解错|纠正|更正)[^。！？]{{0,30}}(?:{_ZH_INSTEAD}|应该是|应为|正确的?是)"
        rf"|我(?:要|说|指|问|想要)的(?:{_ZH_INSTEAD}|是[^。！？，,]{{1,40}}[，,]\s*不是)"
        r"|^你(?:不应该|不该)(?:把|用|改|删|直接|擅自)"
    ),
}
_CUES = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in {**_ENGLISH, **_CHINESE}.items())

#: A text follows that the agent is to work on; it is nobody's order.
_HANDED_OVER = re.compile(
    r"(?:\b(?:translate|proofread|rephrase|summari[sz]e|rewrite|paraphrase|polish|correct|analy[sz]e|explain|edit"
    r"|review|classify|what (?:does|do|is)|here(?:['’]s| is| are))\b|翻译|润色|总结|概括|改写|校对|解释|分析|扩写"
    r"|续写|缩写|修改|批改|以下|下面|如下|这段|这句|这篇|原文)[^\n]{0,120}?(?:[:：]\s*|\n)",
    re.IGNORECASE,
)
#: What is right instead comes with the next sentence.
_WRONG = re.compile(r"(?:\b(?:wrong|incorrect|not right|not correct)|不对|错了|不正确)[.。!！]+$", re.IGNORECASE)
_QUESTION = re.compile(r"[?？]\W*$|[吗么呢]\W*$")
_REQUEST = re.compile(
    r"^(?:can|could|will|would) you\b|能不能|可不可以|可以.{0,12}吗|好吗|行吗|多少[次遍]|不是(?:说|告诉|讲|强调)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Correction:
    """What a user told the agent to do otherwise.

    Attributes:
        index: Place of the message among those that were given.
        text: The user's sentences that hold a cue, verbatim, on one line.
        cue: Name of the first cue.
    """

    index: int
    text: str
    cue: str


def find_corrections(messages: Sequence[Message]) -> tuple[Correction, ...]:
    """The users' corrections, at most one for each message, in order."""
    found: list[Correction] = []
    for index, message in enumerate(messages):
        if message.role != "user" or not message.text.strip():
            continue
        hits = [(cue, sentence) for sentence in _own_sentences(message.text) if (cue := _cue_in(sentence)) is not None]
        if hits:
            text = " ".join(dict.fromkeys(sentence for _, sentence in hits))
            found.append(Correction(index, summary_line(text, _TEXT_LIMIT_CHARS), hits[0][0]))
    return tuple(found)


def hints(corrections: Sequence[Correction]) -> tuple[str, ...]:
    """A line for each correction, to be shown to a model; messages count from 1."""
    return tuple(
        f"message {correction.index + 1} looks like a correction by the user: "
        f'"{summary_line(correction.text, _HINT_LIMIT_CHARS)}"'
        for correction in corrections
    )


def correction_writes(
    corrections: Sequence[Correction], messages: Sequence[Message], registry: MemoryTypeRegistry
) -> list[WriteOp]:
    """Corrections as rules among the ``patterns``, each in the user's words and with the turn it answers.

    Args:
        corrections: Found in ``messages``.
        messages: The conversation; also those before, so that the turn that is answered is known.
        registry: Without a type ``patterns`` that has a ``content`` there are no writes.

    Returns:
        Writes without a name: the planner takes the first words, and never lays one rule over another.
    """
    memory_type = next((known for known in registry.list_all() if known.name == "patterns"), None)
    if memory_type is None or memory_type.template_mode:
        return []
    label = _ABOUT["zh" if language_of(messages).startswith("Chinese") else "en"]
    writes: dict[str, WriteOp] = {}
    for correction in corrections[-_PER_COMMIT_LIMIT:]:
        turn = _answered(messages, correction.index)
        content = correction.text if turn is None else f"{correction.text}\n\n{label.format(turn=turn)}"
        fields: dict[str, str | int | float | bool | None] = {"content": content}
        if memory_type.field("pattern_type") is not None:
            fields["pattern_type"] = "rule"
        data = MemoryData(memory_type=memory_type.name, fields=fields, salience=SALIENCE)
        writes[correction.text] = WriteOp(memory_data=data.sourced({"kind": SOURCE_KIND}))
    return list(writes.values())


def _own_sentences(text: str) -> list[str]:
    """Sentences that the user says to the agent: without what was pasted or handed over."""
    own = prose(text)
    handed = _HANDED_OVER.search(own)
    if handed is not None:
        own = own[: handed.end()]
    if len(own) > _OWN_WORDS_CHARS:
        lines = [line for line in own.splitlines() if line.strip()]
        own = "\n".join([*lines[:_OWN_WORDS_LINES], *lines[-_OWN_WORDS_LINES:]][: 2 * _OWN_WORDS_LINES])
    joined: list[str] = []
    for sentence in sentences(own):
        flat = " ".join(sentence.split())
        if joined and _WRONG.search(joined[-1]):
            joined[-1] = f"{joined[-1]} {flat}"
        else:
            joined.append(flat)
    return joined


def _cue_in(sentence: str) -> str | None:
    if _QUESTION.search(sentence) and not _REQUEST.search(sentence):
        return None
    bare = sentence.lstrip(" -*•·\"'“‘(（")
    return next((name for name, pattern in _CUES if pattern.search(bare)), None)


def _answered(messages: Sequence[Message], index: int) -> str | None:
    """The agent's turn before a message, on one line."""
    before = (message for message in reversed(messages[:index]) if message.role == "assistant")
    turn = next((message for message in before if message.text.strip() or message.tool_calls), None)
    if turn is None:
        return None
    calls = ", ".join(call.name for call in turn.tool_calls)
    return summary_line(turn.text if turn.text.strip() else f"[{calls}]", _ABOUT_LIMIT_CHARS)
