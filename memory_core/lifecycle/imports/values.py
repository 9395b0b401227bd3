"""Single members of foreign records: text, numbers, times, and the names that other programs give to kinds."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from memory_core.errors import InvalidInput
from memory_core.lifecycle.imports.items import digest_of
from memory_core.model.message_values import moment
from memory_core.registry import resolve_category

#: Headings and labels of the documents beyond the categories that the registry knows.
_LABELS = {
    label: memory_type
    for memory_type, labels in {
        "profile": "user memory|about me|about the user|关于我",
        "preferences": "user preferences|my preferences|preferences and habits|偏好设置",
        "facts": "known facts|important facts|key facts|重要事实|已知事实|事实信息",
        "tasks": "todo|todos|to do|open tasks|任务备忘|待办事项",
        "reflections": "反思日志|反思总结",
        "patterns": (
            "user patterns|learnings|lessons|lessons learned|procedural memory|best practices|workflows|"
            "程序性记忆|程序记忆|用户模式|行为模式|最佳实践|经验教训|学习记录"
        ),
        "skills": "proven skills|已验证技能|技能经验",
        "notes": "general notes|通用记忆|其他",
        "events": "decisions|决策",
    }.items()
    for label in labels.split("|")
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,98}[A-Za-z0-9_]|[A-Za-z0-9_]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def type_of(category: Any) -> str | None:
    """The memory type that a category, heading or label of another program stands for."""
    if not isinstance(category, str):
        return None
    folded = unicodedata.normalize("NFKC", category).casefold()
    words = " ".join(re.split(r"[\s_-]+", folded)).strip(" :：*#")
    return resolve_category(words) or _LABELS.get(words)


def text_of(record: Mapping[str, Any], *names: str) -> str:
    """The first of these members that is text and not blank; else empty."""
    found = (record.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value.strip()), "")


def unit_of(value: Any) -> float | None:
    """A number from 0 to 1; what lies outside is cut, what is no number is None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(1.0, max(0.0, float(value)))


def count_of(value: Any) -> int:
    """A count; what is none is 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


def time_of(value: Any) -> datetime | None:
    """A moment; one without an offset is of this machine's clock. What is none is None."""
    if isinstance(value, str) and not re.search(r"(?:[zZ]|[+-]\d\d:?\d\d)\s*$", value[10:]):
        try:
            return datetime.fromisoformat(value.strip()).astimezone()
        except (ValueError, OverflowError, OSError):
            pass
    try:
        return moment(value, "an imported item")
    except InvalidInput:
        return None


def time_on(day: str, clock: str) -> datetime | None:
    """The moment of a day and a time on this machine's clock, such as ``2026-02-21`` and ``14:30``."""
    if not _DAY.fullmatch(day):
        return None
    hour, _, rest = clock.strip().partition(":")
    return time_of(f"{day}T{hour.zfill(2)}:{rest or '00'}")


def session_name(program: str, name: str) -> str:
    """The session that a conversation of another program becomes: its own name where that can be a folder's."""
    return f"{program}-{name if _NAME.fullmatch(name) else digest_of(name)}"


def records_of(value: Any) -> list[Any]:
    """A list, or an empty one for what is none."""
    return value if isinstance(value, list) else []


def mapping_of(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one for what is none."""
    return value if isinstance(value, dict) else {}
