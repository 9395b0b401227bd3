"""The metadata of a memory: the system keys in its trailer, each declared once.

``METADATA`` feeds the trailer (names and order), the operations and tools (what may be given), and the API. Adding a
key is adding a line. ``Metadata`` reads what a trailer states, whatever a hand edit left there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any

from memory_core.core.errors import InvalidInput
from memory_core.core.frozen import frozen


class Kind(StrEnum):
    """What a key holds, and so how it is checked, stored and compared."""

    TEXT = "text"
    #: A list of texts.
    TEXTS = "texts"
    #: A number from 0 to 1.
    SHARE = "share"
    FLAG = "flag"
    #: ISO 8601.
    TIME = "time"
    #: Written by the system alone; no filter compares it.
    SYSTEM = "system"


CATEGORY = "category"
TAG_CHARS, TAGS_MOST, CATEGORY_CHARS = 200, 100, 200


@frozen
class MetadataField:
    """One key.

    Attributes:
        name: In the trailer.
        kind: What it holds.
        description: For whoever gives it; empty where nobody does.
        default: What a memory without the key has.
        given_by: Who may give it: ``commit`` (an argument), ``write`` and ``edit`` (operations).
        shown_in: Operations whose JSON schema names it; providers bound how much of a schema is optional.
    """

    name: str
    kind: Kind
    description: str = ""
    default: Any = None
    given_by: frozenset[str] = frozenset()
    shown_in: frozenset[str] = frozenset()

    def stored(self, given: Any) -> Any:
        """A given value as a trailer keeps it; None for what is the rule and not written down.

        Raises:
            InvalidInput: If it is to be a time and is none, or is too many or too long tags, or a category too long.
        """
        if self.kind is Kind.TEXTS and given and (len(given) > TAGS_MOST or any(len(tag) > TAG_CHARS for tag in given)):
            raise InvalidInput(
                f"{self.name} are too many or too long.",
                hint=f"A memory has at most {TAGS_MOST}, of {TAG_CHARS} characters.",
            )
        if self.name == CATEGORY and isinstance(given, str) and len(given) > CATEGORY_CHARS:
            raise InvalidInput(f"category has {len(given)} characters.", hint=f"A label has at most {CATEGORY_CHARS}.")
        if self.kind is Kind.TIME:
            return expiry_text(self.name, given) or None
        if self.kind is Kind.FLAG and given == self.default:
            return None
        return given


_ANYONE = frozenset({"commit", "write", "edit"})
_OPERATION = frozenset({"write", "edit"})
_WRITE = frozenset({"write"})

ACTIVE = "active"
ARCHIVED = "archived"
CONFIDENCE = "confidence"
EXPIRES_AT = "expires_at"
LINKS = "links"
PINNED = "pinned"
#: The text fields that the body showed when they were stored: what it does not show any more, a person took out of it.
SHOWN_FIELDS = "shown_fields"

#: In the order of the trailer.
METADATA = (
    MetadataField("memory_type", Kind.SYSTEM),
    MetadataField("version", Kind.SYSTEM),
    MetadataField("name", Kind.SYSTEM),
    MetadataField("tags", Kind.TEXTS, "Words to filter by.", (), _ANYONE, _WRITE),
    MetadataField(CATEGORY, Kind.TEXT, "A label.", None, _WRITE, _WRITE),
    MetadataField("abstract", Kind.TEXT, "The memory in one line.", None, _WRITE, _WRITE),
    MetadataField("overview", Kind.TEXT, "The memory in a paragraph.", None, _WRITE, _WRITE),
    MetadataField("created_at", Kind.SYSTEM),
    MetadataField("updated_at", Kind.SYSTEM),
    MetadataField("salience", Kind.SHARE, "How important it is.", None, _OPERATION, _WRITE),
    MetadataField(CONFIDENCE, Kind.SHARE, "How far it is trusted.", 1.0, _OPERATION, _WRITE),
    MetadataField("source", Kind.SYSTEM),
    MetadataField("project", Kind.SYSTEM),
    MetadataField("private", Kind.SYSTEM),
    MetadataField(PINNED, Kind.FLAG, "Never condense or archive it by itself.", False, _ANYONE),
    MetadataField(EXPIRES_AT, Kind.TIME, "ISO date or time from which it no longer holds.", None, _ANYONE, _WRITE),
    MetadataField(ACTIVE, Kind.FLAG, "False keeps it readable, but not found.", True, _OPERATION),
    MetadataField(ARCHIVED, Kind.SYSTEM),
    MetadataField(LINKS, Kind.SYSTEM),
    MetadataField("rendered_sha256", Kind.SYSTEM),
    MetadataField(SHOWN_FIELDS, Kind.SYSTEM),
)
#: Of a ``source``: when it was recorded what had been said on another day.
RECORDED_AT = "recorded_at"
#: No type may declare a field of such a name.
RESERVED_KEYS = tuple(field.name for field in METADATA)
FIELDS: Mapping[str, MetadataField] = {field.name: field for field in METADATA}

SIMILAR = "similar"
#: Each relation and how it reads from the other end.
REVERSE: Mapping[str, str] = {
    SIMILAR: SIMILAR,
    "contradicts": "contradicts",
    "supports": "supported_by",
    "refines": "refined_by",
    "replaces": "replaced_by",
    "supported_by": "supports",
    "refined_by": "refines",
    "replaced_by": "replaces",
}
RELATIONS = tuple(REVERSE)
#: Relations of a memory to one that says otherwise.
CONTESTING = frozenset({"contradicts", "replaced_by"})
USUAL_STRENGTH = 0.5
#: What a hand edit may write for no.
_NO = frozenset({"", "false", "no", "n", "off", "0", "none", "null", "~", "否", "不"})


@frozen
class Link:
    """How a memory relates to another.

    Attributes:
        uri: The other memory.
        relation: One of ``RELATIONS``.
        strength: In [0, 1].
        at: Since when, ISO 8601; None if not known.
    """

    uri: str
    relation: str
    strength: float
    at: str | None = None


class Metadata(Mapping[str, Any]):
    """What a trailer states, by key; properties give it a meaning whatever a hand edit left there.

    Args:
        stated: Keys and values; None stands for no key.
    """

    __slots__ = ("_stated",)

    def __init__(self, stated: Mapping[str, Any] | None = None) -> None:
        self._stated = {name: value for name, value in (stated or {}).items() if value is not None}

    def __getitem__(self, name: str) -> Any:
        return self._stated[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stated)

    def __len__(self) -> int:
        return len(self._stated)

    def __repr__(self) -> str:
        return f"Metadata({self._stated!r})"

    def changed(self, values: Mapping[str, Any]) -> Metadata:
        """With other values; None takes a key out."""
        return Metadata({**self._stated, **values})

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1; the default where there is none."""
        return share_of(self._stated.get(name), default)

    def text(self, name: str) -> str | None:
        """A text; None where there is none, or it is empty."""
        value = self._stated.get(name)
        return value if isinstance(value, str) and value else None

    @property
    def confidence(self) -> float:
        """How far the memory is trusted, in [0, 1]."""
        return self.share(CONFIDENCE, 1.0)

    @property
    def is_active(self) -> bool:
        """Whether it was not put aside."""
        return self._stated.get(ACTIVE) is not False

    @property
    def is_pinned(self) -> bool:
        """Whether it is never expired, condensed or archived by itself; ``"yes"`` or ``1`` by hand count too."""
        value = self._stated.get(PINNED)
        return value.strip().casefold() not in _NO if isinstance(value, str) else bool(value)

    @property
    def expires_at(self) -> datetime | None:
        """The moment from which it no longer holds, aware; None is never. A day is over when it is over in UTC."""
        value = self._stated.get(EXPIRES_AT)
        return _end_of(value) if isinstance(value, str) else None

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over; a pinned memory's never is."""
        moment = self.expires_at
        return moment is not None and moment <= now and not self.is_pinned

    @property
    def changed_at(self) -> datetime | None:
        """When it was last changed, aware; None where the trailer does not say."""
        return read_moment(self._stated.get("updated_at") or self._stated.get("created_at"))

    @property
    def source(self) -> Mapping[str, Any]:
        """Where it came from: kind, session and the like; empty where none is stated."""
        source = self._stated.get("source")
        return source if isinstance(source, Mapping) else {}

    @property
    def recorded_at(self) -> datetime | None:
        """When it came into the store, aware, where that is not when it was said."""
        return read_moment(self.source.get(RECORDED_AT))

    @property
    def session(self) -> str:
        """The session that it came from; empty where none is known."""
        return str(self.source.get("session_id", ""))

    @property
    def is_tool_failure(self) -> bool:
        """Whether it tells how a tool once failed, so that it is a lesson and no rule of the user's."""
        return bool(self.source.get("error_type"))

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags; a text by hand names them with commas between."""
        stated = self._stated.get("tags")
        if isinstance(stated, str):
            return tuple(tag for each in stated.replace("，", ",").split(",") if (tag := each.strip("# ")))
        return tuple(str(tag) for tag in stated) if isinstance(stated, list) else ()

    @property
    def links(self) -> tuple[Link, ...]:
        """Its links; entries of another shape are none."""
        stated = self._stated.get(LINKS)
        return tuple(_links(stated)) if isinstance(stated, list) else ()

    @property
    def next_version(self) -> int:
        """One more than the version; 1 where a hand edit left something else."""
        stated = self._stated.get("version")
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated + 1
        return 1


def _links(stated: list[Any]) -> Iterator[Link]:
    for link in stated:
        if not isinstance(link, Mapping) or not isinstance(link.get("uri"), str):
            continue
        relation, at = link.get("relation", SIMILAR), link.get("at")
        if isinstance(relation, str) and relation in REVERSE:
            strength = share_of(link.get("strength"), USUAL_STRENGTH)
            yield Link(link["uri"], relation, strength, at if isinstance(at, str) else None)


def outdoes(relation: str, said: str, confidence: float, own_said: str, own_confidence: float) -> bool:
    """Whether a memory that contests another one stands above it.

    What replaces does so by what it is; of two that contradict each other the later one, and of two of the same second
    the one that evidence left more of.

    Args:
        relation: Of the contested memory to the other: one of ``CONTESTING``.
        said: When the other was last changed, ISO 8601 in UTC.
        confidence: Of the other, in [0, 1].
        own_said: When the contested one was last changed.
        own_confidence: Of the contested one.
    """
    if relation == "replaced_by":
        return True
    return said > own_said or (said == own_said and confidence > own_confidence)


def share_of(value: Any, default: float) -> float:
    """A number in [0, 1]; anything else is the default."""
    is_share = isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
    return float(value) if is_share else default


def read_moment(value: object) -> datetime | None:
    """The moment, aware; None for what is none, as a hand edit may have left it."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def expiry_text(name: str, given: str) -> str:
    """A time as a trailer keeps it; empty stays empty, which takes one away.

    Raises:
        InvalidInput: If it is neither an ISO date nor a time.
    """
    text = given.strip()
    if text and _end_of(text) is None:
        raise InvalidInput(
            f"{name} {text[:40]!r} is no date.",
            hint="Use an ISO date or time, e.g. 2027-03-31 or 2027-03-31T12:00Z.",
        )
    return text


def utc_text(moment: datetime) -> str:
    """A moment as trailers hold it: ISO 8601 in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def expires_after(now: str, days: float) -> str:
    """The expiry of a memory made now that holds for so many days, to the second in UTC."""
    return utc_text(datetime.fromisoformat(now) + timedelta(days=days))


def _end_of(text: str) -> datetime | None:
    """A moment; of a date the end of that day in UTC."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return read_moment(text)
    if day == date.max:
        return datetime.max.replace(tzinfo=UTC)
    return datetime.combine(day + timedelta(days=1), time(), UTC)
