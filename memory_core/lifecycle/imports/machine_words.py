"""Words in a coding agent's transcript that stand under the user's name and that no user typed.

The standard library alone: a hook looks for what was said last while its host waits.
"""

from __future__ import annotations

import re

#: Claude Code's own commands, their output and its reminders.
MACHINE = re.compile(r"\s*<(?:command-(?:name|message|args)|local-command-\w+|bash-(?:input|stdout|stderr)|system-)")
#: What Codex tells its model about the machine and the folder.
CODEX_MACHINE = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions|turn_aborted|skill)|# AGENTS\.md)"
)
