"""Which language a conversation is in, and the prose in it that tells.

Decided from what the users themselves write, never from a locale. Owned here: what of a text is a person's own
prose (not code, addresses, quotations, logs), how it falls into sentences, and the language of it: by script, and
in Latin script by the small words that every sentence needs. A Chinese sentence full of English terms is Chinese.
Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from memory_core.core.memory.message import Message

UNDECIDED = "the language the user writes in"
CHINESE = "Chinese"

#: Of a long text only both ends count: what is in the middle is mostly pasted.
_END_CHARS = 400
_READ_LIMIT_CHARS = 20_000
#: A message counts more the longer it is, up to this.
_WEIGHT_LIMIT = 5
#: An English function word outweighs so many characters of another script: terms and quotations stand without them.
_HAN_PER_WORD = 3
_LETTERS_PER_WORD = 5
#: Less kana than this among Chinese characters is decoration, such as 優の良品.
_KANA_SHARE = 0.2

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_ELEMENT = re.compile(
    r"<([A-Za-z][\w:-]{0,60})\b[^<>]{0,500}>.{0,2000}?</\1>|<!--.{0,2000}?-->|</?[A-Za-z][^<>\n]{0,500}>", re.DOTALL
)
_INLINE = re.compile(r"(`{1,3})[^`\n]+\1")
_ADDRESS = re.compile(
    r"(?a:\b[a-z][a-z0-9+.-]{1,20}://\S+|\bwww\.\S+|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.]{1,64})", re.IGNORECASE
)
_PATH = re.compile(
    r"(?a:(?<![\w/])(?:[A-Za-z]:)?[\w.~-]{0,64}(?:[\\/][\w.@~+-]{1,255}){2,}[\\/]?"
    r"|(?<![\w-])[\w-]{1,64}\.[a-z]{1,5}\b(?![.。]?\s*$))"
)
_QUOTED = re.compile(
    r"“[^”]{2,1000}”|「[^」]{2,1000}」|『[^』]{2,1000}』|《[^》]{1,200}》|(?<![\w\"])\"[^\"\n]{2,1000}\"(?![\w\"])"
)
_LOG_LINE = re.compile(
    r"^(?:[ \t]*>"
    r"|(?: {4}|\t)[ \t]*(?![-*+•\d \t])\S"
    r"|[ \t]*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
    r"|[ \t]*\[?\d\d:\d\d:\d\d"
    r"|[ \t]*(?:\[?(?:INFO|DEBUG|WARN(?:ING)?|ERROR|FATAL|TRACE)\]?\b)"
    r"|[ \t]*(?:Traceback \(|File \"|at [\w$.<>]+ ?\(|Caused by: |(?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception)\b:?)"
    r"|[ \t]*(?:[$#%] |>>> |\.\.\. |[-+]{3} |@@ |diff --git|\|)"
    r"|[ \t]*[{}\[\]();,]+[ \t]*$"
    r"|\[(?:image|file|audio|video)\][ \t]*$).*$",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"[^\n]*?(?:[。！？!?…]+[”」』\"')）]*|\.{1,6}[\"')]{0,3}(?=\s|$)|(?=\n)|$)", re.DOTALL)

_SCRIPTS: Mapping[str, re.Pattern[str]] = {
    "han": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"),
    "kana": re.compile("[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]"),
    "Korean": re.compile("[\uac00-\ud7a3\u1100-\u11ff\u3131-\u318e]"),
    "cyrillic": re.compile("[\u0400-\u04ff]"),
    "arabic": re.compile("[\u0620-\u064a\u066e-\u06d3]"),
    "Hebrew": re.compile("[\u05d0-\u05ea]"),
    "Greek": re.compile("[\u0370-\u03ff\u1f00-\u1fff]"),
    "Thai": re.compile("[\u0e01-\u0e3a\u0e40-\u0e4e]"),
    "Hindi": re.compile("[\u0900-\u097f]"),
}
_ALPHABETS = {
    "cyrillic": (("Ukrainian", "іїєґ"), (UNDECIDED, "ђјљњћџѓќѕў"), ("Russian", "")),
    "arabic": (("Urdu", "ٹڈڑےں"), ("Persian", "پچژگ"), ("Arabic", "")),
}
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "English": "the a an is are was were be been am do does did don't doesn't didn't i i'm i'd i'll i've you "
        "your you're we our they it it's its he she my me this that these those of to in on at for with "
        "from by and or but not no if then so what when where why how who which can could would should "
        "will won't can't let's have has had please thanks hello hi hey yes there here just about into "
        "some any all more than as up out",
        "Spanish": "el la los las un una unos unas de del que y en es son está están por para con no se lo le me mi "
        "tu su como cómo qué cuál dónde pero más este esta esto ese eso hay muy ya también si sí gracias "
        "hola puedo puedes quiero al cuando porque soy tengo hacer",
        "French": "le la les un une des du de et est sont je tu il elle nous vous ils que qui dans pour avec sur "
        "pas ne ce cette ces mon ma mes ton votre c'est j'ai où quoi comment pourquoi mais ou au aux "
        "plus très bonjour merci peux peut veux être avoir fait si oui non y en",
        "German": "der die das ein eine einen einem einer und ist sind war ich du er sie es wir ihr nicht kein "
        "keine mit von zu zum zur im in auf für an dem den des was wie wo warum wer aber oder auch wenn "
        "dass kann kannst können bitte danke hallo mein meine mir mich dir habe hat haben nur noch schon "
        "nach bei aus",
        "Portuguese": "o a os as um uma uns umas de do da dos das que e em no na nos nas é são está estão por para com "
        "não se lhe meu minha seu sua como qual onde mas mais este esta isso isto muito também sim "
        "obrigado obrigada olá posso pode quero ao quando porque eu você tenho fazer",
        "Italian": "il lo la i gli le un uno una di del della dei che e è sono in per con non si mi ti ci come cosa "
        "dove quale ma più questo questa quello ho hai ha molto anche sì grazie ciao posso puoi voglio "
        "al alla quando perché fare nel nella io tu",
    }.items()
}
#: The most frequent characters that only one of the two ways of writing Chinese has.
_SIMPLIFIED = frozenset(
    "开们画欢时动类觉个会这来吗学对试过还记让没妈为样说实现虑赛园确点难听乐师参许总错当给习级兴课带车尝与帮绘东爱书爷颜话艺选电诉担关变节问气应间项礼奋计备进经笔数视机奖无练该图办赢红戏伤绪圣诞写业装风结题"
    "体队运获荡张从场观紧适长创剧绿频择独买谈讲饰谁达忆误积换组闪够状营单险谢满团仅坏转谊刚验极黄蓝丽认静况读飞钢叶决绩识树设马阳饭处联览顺诚拥评馆际释块见续预尽虽终调怀环医员边轻织励宝纸条议庆炼优胜绝养坚"
    "声继简争语却毕烟户细义丝盘锻国论两烦测战随络领历赏讨网败顾码库务栈线异检编译构删输缓链档"
)
_TRADITIONAL = frozenset(
    "開們畫歡時動類覺個會這來嗎學對試過還記讓沒媽為樣說實現慮賽園確點難聽樂師參許總錯當給習級興課帶車嘗與幫繪東愛書爺顏話藝選電訴擔關變節問氣應間項禮奮計備進經筆數視機獎無練該圖辦贏紅戲傷緒聖誕寫業裝風結題"
    "體隊運獲蕩張從場觀緊適長創劇綠頻擇獨買談講飾誰達憶誤積換組閃夠狀營單險謝滿團僅壞轉誼剛驗極黃藍麗認靜況讀飛鋼葉決績識樹設馬陽飯處聯覽順誠擁評館際釋塊見續預盡雖終調懷環醫員邊輕織勵寶紙條議慶煉優勝絕養堅"
    "聲繼簡爭語卻畢煙戶細義絲盤鍛國論兩煩測戰隨絡領歷賞討網敗顧碼庫務棧線異檢編譯構刪輸緩鏈檔"
)


def spoken(text: str) -> str:
    """The text without fenced code, markup and lines of logs; both ends of a very long one."""
    if len(text) > _READ_LIMIT_CHARS:
        text = f"{text[: _READ_LIMIT_CHARS // 2]}\n\n{text[-_READ_LIMIT_CHARS // 2 :]}"
    for pattern in (_FENCE, _ELEMENT, _LOG_LINE):
        text = pattern.sub("\n", text)
    return text


def prose(text: str) -> str:
    """What a person says in their own words: ``spoken`` without code, addresses, paths and quotations in it."""
    text = spoken(text)
    for pattern in (_INLINE, _ADDRESS, _PATH, _QUOTED):
        text = pattern.sub(" ", text)
    return text


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, each with its mark; a line break ends one, too."""
    return [found for match in _SENTENCE.finditer(text) if (found := match.group().strip())]


def language_of(messages: Sequence[Message]) -> str:
    """The language of the users' messages, in English.

    Returns:
        For example ``English``, ``Chinese (Simplified)``, ``Chinese`` where both ways of writing are possible, or
        ``UNDECIDED``. Where the users' messages do not tell, all messages but prompts and tools' answers decide.
    """
    said = [message for message in messages if message.role not in ("system", "developer", "tool", "function")]
    users = [message.text for message in said if message.role == "user"]
    for texts in (users, [message.text for message in said]):
        found = _majority([_ends(prose(text)) for text in texts])
        if found is not None:
            return found
    return UNDECIDED


def _majority(texts: Sequence[str]) -> str | None:
    votes: Counter[str] = Counter()
    for text in texts:
        language = _language(text)
        if language is not None:
            votes[language] += min(_WEIGHT_LIMIT, 1 + len(text) // 40)
    if not votes:
        return None
    language = votes.most_common(1)[0][0]
    return _written(texts) if language == CHINESE else language


def _language(text: str) -> str | None:
    """The language of one text, or None if it does not tell."""
    counts = {name: len(pattern.findall(text)) for name, pattern in _SCRIPTS.items()}
    words = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    english = sum(word in _FUNCTION_WORDS["English"] for word in words)
    han, kana = counts.pop("han"), counts.pop("kana")
    letters, script = max((count, name) for name, count in counts.items())
    if max(han + kana, letters) == 0:
        return _latin(words)
    if han + kana >= letters:
        if han + kana < _HAN_PER_WORD * english:
            return "English"
        return "Japanese" if kana > _KANA_SHARE * (han + kana) else CHINESE
    if letters < _LETTERS_PER_WORD * english:
        return "English"
    return next((name for name, marks in _ALPHABETS.get(script, ()) if _tells(marks, text)), script)


def _tells(marks: str, text: str) -> bool:
    return not marks or any(mark in text.casefold() for mark in marks)


def _latin(words: Sequence[str]) -> str | None:
    """The language most of whose small words appear; None for too few, or for two alike."""
    ranked = Counter(
        {name: sum(word in known for word in words) for name, known in _FUNCTION_WORDS.items()}
    ).most_common(2)
    (best, count), (_, second) = ranked
    return best if count > second and count * 8 >= len(words) else None


def _written(texts: Iterable[str]) -> str:
    """Chinese, with its way of writing where the characters tell."""
    chars = Counter(char for text in texts for char in text)
    simplified = sum(chars[char] for char in _SIMPLIFIED)
    traditional = sum(chars[char] for char in _TRADITIONAL)
    if simplified > 4 * traditional:
        return f"{CHINESE} (Simplified)"
    return f"{CHINESE} (Traditional)" if traditional > 4 * simplified else CHINESE


def _ends(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 2 * _END_CHARS else f"{flat[:_END_CHARS]} {flat[-_END_CHARS:]}"
