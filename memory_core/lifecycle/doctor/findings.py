"""What an examination of a store found: values, and how they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

#: Of many alike, so many are named one by one.
_NAMED = 20


class Severity(StrEnum):
    """How bad a finding is: from warning on, something is to be done."""

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"


_TO_DO = (Severity.WARNING, Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an examination has to say.

    Attributes:
        check: What was looked at, one word.
        severity: How bad it is.
        subject: A URI, a file below the memory folder, or what else it is about.
        detail: What was found, without any memory's text.
        repair: What ``doctor --repair`` does about it; None where nothing can or need be done by a program.
    """

    check: str
    severity: Severity
    subject: str
    detail: str
    repair: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """An examination.

    Attributes:
        findings: In the order of the checks.
        repaired: What was repaired before, one sentence each.
    """

    findings: tuple[Finding, ...]
    repaired: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is to be done."""
        return not any(finding.severity in _TO_DO for finding in self.findings)

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(finding for finding in self.findings if finding.check == check)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "clean": self.clean,
            "repaired": list(self.repaired),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def lines(self) -> Iterator[str]:
        """For a person: what was repaired, what was found, the worst last, and the next step."""
        for sentence in self.repaired:
            yield f"repaired  {sentence}"
        for severity in Severity:
            for finding in self.findings:
                if finding.severity is severity:
                    yield f"{severity:<8}  {finding.check}: {finding.subject}: {finding.detail}"
        counts = Counter(finding.severity for finding in self.findings)
        if self.clean:
            yield "The store is sound."
        else:
            yield f"Errors: {counts[Severity.ERROR]}, warnings: {counts[Severity.WARNING]}."
            if any(finding.repair for finding in self.findings if finding.severity in _TO_DO):
                yield "Next: runebook doctor --repair"
            else:
                yield "Nothing of it can be mended by a program; each line says what to do."


def gathered(
    check: str, severity: Severity, subjects: Iterable[str], detail: str, repair: str | None = None
) -> Iterator[Finding]:
    """One finding for each subject; of very many the first few and how many more."""
    more = 0
    for number, subject in enumerate(subjects):
        if number < _NAMED:
            yield Finding(check, severity, subject, detail, repair)
        else:
            more += 1
    if more:
        yield Finding(check, severity, f"{more:,} more", detail, repair)
