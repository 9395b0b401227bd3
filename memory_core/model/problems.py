"""What is wrong with a file that a person or another program wrote: a value that travels from storage to the doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """One thing about one file that keeps it from being used as its writer may expect; the file stays as it is.

    Attributes:
        uri: The file's URI; where no URI can name it, its path below the memory folder.
        what: What is wrong, without any of the file's text.
        hint: What its owner can do.
    """

    uri: str
    what: str
    hint: str
