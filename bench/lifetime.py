"""A year in the life of a store, on a clock of its own: what stays, what leaves, and whether what matters is found.

Each made-up day brings a piece of a conversation, entries of the day's log, a fact, and as many memories that nobody
will ever ask for. Most facts are asked for again every few weeks, by a question that gives only part of what they say;
some never. Once a month maintenance runs. The same year without maintenance is the baseline.

    python -m bench.lifetime [--days 365] [--seed 7] [--noise 0.9] [--no-baseline]

Exits with 1 if at the end fewer than 95 % of the facts in use are among the first ten hits, if more than 30 % of the
live memories are of no use, or if anything that was planted cannot be brought back by a command.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.synthetic import Told, conversation, told
from memory_core.core.caller import Access
from memory_core.core.config import Config
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.memory.results import Action, CommitReceipt
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.upkeep.archive import ARCHIVE_LIST, RESTORE, ArchiveListRequest, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook, open_memory

FOUND_SHARE, NOISE_SHARE = 0.95, 0.30
_BEGIN = datetime(2026, 1, 1, 8, 0, tzinfo=UTC)
_WEEK, _MAINTAINED_DAYS, _MONTH = 7, 30, 30.4375
_TOP = 10
#: Facts that are asked for to measure a month.
_SAMPLE = 60
#: Facts that are asked for again, and facts that nobody asks for, for each day of the year.
_USED_A_DAY, _UNUSED_A_DAY = 1.0, 0.1
#: Days between two questions about a fact in use.
_ASKED_DAYS = (30, 75)
_EXCHANGES_A_DAY = 3
#: Days between two entries of the log that matter.
_DECIDED_DAYS = 10
#: Passes that make memories of what was said or logged.
_PROMOTING = frozenset({"logs", "promotion"})
#: Numbers of made-up statements, so that no two kinds share one.
_FACTS, _NOISE, _TALK, _LOG = 0, 100_000, 200_000, 300_000


@dataclass(slots=True)
class Fact:
    """Something that was planted.

    Attributes:
        told: What it says, and what is asked.
        uri: Where it was stored.
        every: Days between questions; 0 for one that nobody asks for.
        next_asked: The day of the next question.
    """

    told: Told
    uri: str
    every: int
    next_asked: int


@dataclass(frozen=True, slots=True)
class Month:
    """How the store stands at the end of a month."""

    number: int
    live: int
    in_use: int
    archived: int
    promoted: int
    megabytes: float
    recall: float

    @property
    def noise(self) -> float:
        """Share of the live memories that nobody uses."""
        return 1.0 - self.in_use / self.live if self.live else 0.0

    def line(self) -> str:
        """A row of the table."""
        return (
            f"{self.number:5} {self.live:6} {self.in_use:7} {self.noise:7.1%} {self.archived:9} {self.promoted:9} "
            f"{self.megabytes:6.1f} {self.recall:8.3f}"
        )


HEADER = "month   live  in use   noise  archived  promoted     MB  R@10 of facts in use"


@dataclass(slots=True)
class Year:
    """One store through a year.

    Attributes:
        maintained: Whether maintenance runs once a month.
        noise_a_day: Memories a day that nobody will ask for.
        days: How many it has; at the last all facts in use are asked for, at the end of a month a sample.
    """

    memory: Runebook
    seed: int
    noise_a_day: float
    maintained: bool
    days: int
    facts: list[Fact] = field(default_factory=list)
    promoted: set[str] = field(default_factory=set)

    def run(self) -> Iterator[Month]:
        """Live through the days; yields each month's end."""
        chance = random.Random(self.seed)
        month = 1
        for day in range(self.days):
            self._live(day, chance)
            if self.maintained and day % _MAINTAINED_DAYS == _MAINTAINED_DAYS - 1:
                self._maintain(day)
            if day + 1 >= round(month * _MONTH) or day == self.days - 1:
                yield self._month(month, day)
                month += 1

    def restored(self) -> tuple[int, int, list[str]]:
        """Bring back every planted fact that left, by the command's own call.

        Returns:
            How many had left, how many came back, and the URIs of those whose text is not there word for word.
        """
        gone = [fact for fact in self.facts if self._text(fact.uri) is None]
        for fact in gone:
            self.memory.run(RESTORE, ArchiveRequest([fact.uri], now=_moment(366)))
        missing = [fact.uri for fact in self.facts if fact.told.text not in (self._text(fact.uri) or "")]
        return len(gone), len(gone) - len({fact.uri for fact in gone} & set(missing)), missing

    def _live(self, day: int, chance: random.Random) -> None:
        now = _moment(day)
        for number in _due(_USED_A_DAY, day):
            every = chance.randint(*_ASKED_DAYS)
            self._plant(_FACTS + 2 * number, every, day, now)
        for number in _due(_UNUSED_A_DAY, day):
            self._plant(_FACTS + 2 * number + 1, 0, day, now)
        for number in _due(self.noise_a_day, day):
            noise = told(_NOISE + number)
            self._commit(noise.text, "notes", {"title": noise.name}, now)
        entry = told(_LOG + day)
        self.memory.commit(CommitRequest(entry.text, memory_type="daily_logs", priority="low", now=now))
        if day % _DECIDED_DAYS == 0:
            self.memory.commit(
                CommitRequest(
                    f"Decided: {entry.name}.",
                    memory_type="daily_logs",
                    category="facts",
                    priority=0.9,
                    fields={"kind": "auto_extract"},
                    now=now,
                )
            )
        messages = [
            {**message, "time": (now + timedelta(minutes=at)).isoformat(), "id": f"{day}-{at}"}
            for at, message in enumerate(conversation(_TALK + day * _EXCHANGES_A_DAY, 2 * _EXCHANGES_A_DAY))
        ]
        self.memory.commit(
            CommitRequest(messages=messages, session_id=f"week-{day // _WEEK:02}", now=now, extract=False)
        )
        for fact in self.facts:
            if fact.every and fact.next_asked <= day:
                self.memory.find(FindRequest(fact.told.question, limit=_TOP, now=now))
                fact.next_asked = day + fact.every

    def _plant(self, number: int, every: int, day: int, now: datetime) -> None:
        statement = told(number)
        uri = self._commit(statement.text, "facts", {"topic": statement.name}, now)
        self.facts.append(Fact(statement, uri, every, day + every))

    def _commit(self, content: str, memory_type: str, fields: dict[str, str], now: datetime) -> str:
        receipt = self.memory.commit(CommitRequest(content, memory_type=memory_type, fields=fields, now=now))
        return receipt.results[0].uri

    def _maintain(self, day: int) -> None:
        for done in self.memory.run(MAINTAIN, MaintainRequest(now=_moment(day))):
            if done.failure is not None:
                raise done.failure
            if done.name in _PROMOTING:
                self.promoted |= {uri for receipt in done.receipts for uri in _created(receipt)}

    def _month(self, number: int, day: int) -> Month:
        memory = self.memory
        memory.indexer.follow()
        connection = memory.indexer.catalog.connection()
        rows = connection.execute("SELECT uri FROM documents WHERE context_type = 'memory' AND active").fetchall()
        live = {uri for (uri,) in rows}
        used = [fact for fact in self.facts if fact.every]
        return Month(
            number,
            len(live),
            sum(fact.uri in live for fact in used),
            sum(1 for _ in memory.run(ARCHIVE_LIST, ArchiveListRequest())),
            len(self.promoted),
            _megabytes(memory.store.files.root),
            self._recall(used if day + 1 >= self.days else used[:: max(1, len(used) // _SAMPLE)], day),
        )

    def _recall(self, facts: Sequence[Fact], day: int) -> float:
        """Share of the facts whose text is among the first hits; asked by somebody who leaves no trace."""
        quiet = self.memory.view(access=Access.PRIVATE)
        found = 0
        for fact in facts:
            hits = quiet.find(FindRequest(fact.told.question, limit=_TOP, now=_moment(day))).hits
            found += any(fact.told.text in (self._text(hit.uri.partition("#")[0]) or "") for hit in hits)
        return found / len(facts) if facts else 1.0

    def _text(self, uri: str) -> str | None:
        return self.memory.store.text(MemoryUri.parse(uri))


def main() -> None:
    """Run the year, and the baseline."""
    parser = argparse.ArgumentParser(description="A year in the life of a store.")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--noise", type=float, default=0.9, help="memories a day that nobody will ask for, beside the facts"
    )
    parser.add_argument("--no-baseline", action="store_true", help="only the year with maintenance")
    arguments = parser.parse_args()
    sound = _year(arguments, maintained=True)
    if not arguments.no_baseline:
        _year(arguments, maintained=False)
    sys.exit(0 if sound else 1)


def _year(arguments: argparse.Namespace, *, maintained: bool) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="runebook-lifetime-"))
    started = time.perf_counter()
    print(f"\n{'with maintenance once a month' if maintained else 'the baseline: without maintenance'}\n{HEADER}")
    try:
        with open_memory(Config.model_validate({"home": folder, "watch": "off"})) as memory:
            memory.warm()
            year = Year(memory, arguments.seed, arguments.noise, maintained, arguments.days)
            months = []
            for month in year.run():
                print(month.line(), flush=True)
                months.append(month)
            left, back, missing = year.restored()
            print(f"planted facts that had left: {left}; brought back word for word: {back}; lost: {len(missing)}")
            print(f"{arguments.days} days in {time.perf_counter() - started:.1f} s, seed {arguments.seed}")
            last = months[-1]
            return last.recall >= FOUND_SHARE and last.noise <= NOISE_SHARE and not missing
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _due(a_day: float, day: int) -> range:
    """Numbers of what is owed that day, where so much comes a day."""
    return range(int(day * a_day), int((day + 1) * a_day))


def _created(receipt: CommitReceipt) -> set[str]:
    """Memories that a commit made."""
    made = (result.uri for result in receipt.results if result.action is Action.CREATED)
    return {uri for uri in made if "/memories/" in uri}


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _moment(day: int) -> datetime:
    return _BEGIN + timedelta(days=day)


if __name__ == "__main__":
    main()
