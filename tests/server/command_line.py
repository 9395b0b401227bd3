"""Commands in the test's own process: what they print, and with which status they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: Exit status, stdout, stderr.
Outcome = tuple[int, str, str]
Run = Callable[..., Outcome]


def facts(outcome: Outcome) -> Any:
    """The JSON that a command printed."""
    status, out, err = outcome
    assert status == 0, err  # on a busy machine a line of progress may stand there
    return json.loads(out)
