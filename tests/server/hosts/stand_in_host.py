"""A host's command line as tests have it installed: writes down how it was called, and answers as Claude Code does.

Run as a program. It is found under a host's name on the PATH, and told by ``conduct.json`` beside it what to do:
``answer``, ``fail``, ``nonsense``, ``hang`` (until it is ended), or ``wait`` (until a file ``go`` lies beside it).
Like a real host it runs our hooks and starts our server, in the environment that it was given.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(sys.argv[0]).absolute().parent
_SAID = re.compile(r"I keep my (\w+) in the (\w+)")


def main() -> int:
    prompt = sys.stdin.buffer.read().decode()
    conduct = json.loads((HERE / "conduct.json").read_text())
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) if conduct == "hang" else None
    call = {
        "argv": sys.argv[1:],
        "prompt": prompt,
        "cwd": str(Path.cwd()),
        "files": sorted(str(path.relative_to(Path.cwd())) for path in Path.cwd().rglob("*") if path.is_file()),
        "environment": dict(os.environ),
        "parent": os.getppid(),
        "pids": [os.getpid(), *([child.pid] if child else [])],
    }
    draft = HERE / f"call-{os.getpid()}-{time.time_ns()}"
    draft.write_text(json.dumps(call), encoding="utf-8")
    draft.rename(draft.with_suffix(".json"))
    _be_a_host(prompt)
    if conduct == "hang":
        time.sleep(600)
    while conduct == "wait" and not (HERE / "go").exists():
        time.sleep(0.02)
    if conduct == "fail":
        sys.stderr.write("Invalid API key · Please run /login\n")
        return 1
    if conduct == "nonsense":
        print("Certainly! What would you like me to remember?")
        return 0
    writes = [
        {
            "memory_data": {
                "memory_type": "facts",
                "fields": {"topic": thing, "content": f"The {thing} is in the {place}."},
            }
        }
        for thing, place in dict(_SAID.findall(prompt)).items()
    ]
    answer = {"reasoning": "where things are kept", "operations": {"write_operations": writes}}
    told = {"type": "result", "is_error": False, "result": json.dumps(answer), "structured_output": answer}
    print(json.dumps({**told, "usage": {"input_tokens": 900, "output_tokens": 60}}))
    return 0


def _be_a_host(prompt: str) -> None:
    """Have a session of one's own with hooks and a server, as a host has when nothing switches them off."""
    said = [{"role": "user", "content": prompt}]
    event = {"session_id": "of-the-stand-in", "hook_event_name": "SessionEnd", "messages": said}
    for words, sent in ((["hook", "session-end", "--host", "generic"], json.dumps(event)), (["serve"], "")):
        subprocess.run([sys.executable, "-m", "server.cli", *words], input=sent.encode(), timeout=120, check=True)


if __name__ == "__main__":
    sys.exit(main())
