"""A model behind a program of this machine: the prompt on its standard input, the answer on its standard output.

The table beside this module holds the command lines of hosts that people have anyway; what their options are, and
where they are documented, is in docs/how-to/memories-by-themselves.md. Any other program is called as it is written.
No shell reads anything. A program works in an empty folder of the store's own and without its tools, hooks and
servers, as far as it can be told; beside that ``ASIDE`` in its environment keeps our own hooks and server silent, so
that nothing of a call is recorded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

from memory_core.core.caller import ASIDE
from memory_core.core.errors import ModelUnavailable, RunebookError
from memory_core.core.frozen import frozen
from memory_core.core.llm.client import Completion, LLMRequest, TokenUsage
from memory_core.core.llm.json_text import LIMIT_CHARS, quoted
from memory_core.core.llm.structured import strict, system_text
from memory_core.core.memory.names import short_hash
from memory_core.core.text.word_table import word_table

if TYPE_CHECKING:
    from memory_core.core.config import LLMConfig

_TRY = "Try the command with: runebook doctor."
_ERROR_BYTES = 4_096
_OUTPUT_BYTES = 4 * LIMIT_CHARS
_PLACE = re.compile(r"\{(model|schema|schema_file|only_data)\}")
#: Windows runs these by ``cmd``, which reads quotes and signs in arguments in its own way.
_BATCH = (".cmd", ".bat")


def preset_of(command: Sequence[str]) -> str | None:
    """The preset that a command means: its name, or the path of its program and nothing else; None for none."""
    if len(command) != 1:
        return None
    stem = PurePath(command[0].replace("\\", "/")).stem.casefold()
    known = word_table(__file__)["presets"]
    return next((name for name, preset in known.items() if stem in (name, preset["program"])), None)


def program_of(preset: str) -> str | None:
    """The full path of a preset's program; None where it is not installed, or there is no such preset."""
    found = word_table(__file__)["presets"].get(preset)
    program = None if found is None else shutil.which(found["program"])
    return None if program is None else str(Path(program).absolute())


@frozen
class CommandLine:
    """How a program is called.

    Attributes:
        words: The program and its arguments, without placeholders.
        keeps_schema: Whether it keeps to the request's schema.
        files: Text of files that it finds in its folder, by path.
        without: Variables that it must not inherit.
    """

    words: tuple[str, ...]
    keeps_schema: bool
    files: Mapping[str, str]
    without: tuple[str, ...]


def command_line(command: Sequence[str], model: str, request: LLMRequest, folder: Path) -> CommandLine:
    """The call that a command stands for.

    Args:
        command: A preset, a program of a preset, or any program with its arguments, where ``{model}`` stands for the
            model.
        model: As in ``llm.model``; empty is the preset's own.
        request: What is asked.
        folder: Where the program works.

    Raises:
        ModelUnavailable: If there is no program, or a preset lacks its model.
    """
    table = word_table(__file__)
    name = preset_of(command)
    preset: Mapping[str, Any] = table["presets"][name] if name is not None else {"arguments": command[1:]}
    first = preset["program"] if name is not None and command[0] == name else (*command, "")[0]
    program = shutil.which(first) if first else None
    if program is None and name is not None:  # it was moved
        program = shutil.which(preset["program"])
    if program is None:
        raise ModelUnavailable(
            f"the program {first!r} of llm.command was not found.",
            hint=f"Install it, or name its full path in llm.command. {_TRY}",
        )
    model = model.strip() or preset.get("model", "")
    words = list(preset["arguments"])
    if not model and any("{model}" in word for word in words):
        raise ModelUnavailable(
            f"setting 'llm.model' is empty, and {first!r} needs it.", hint="Name one of its models in llm.model."
        )
    shape = request.schema and preset.get("schema_arguments")
    files = {path: json.dumps(value) for path, value in preset.get("files", {}).items()}
    values = {"model": model, "only_data": table["only_data"]}
    if shape:
        values["schema"] = json.dumps(strict(request.schema, preset["dialect"]), ensure_ascii=True)
        inline = "{schema}" in shape
        if inline and program.casefold().endswith(_BATCH):
            shape = None
        elif not inline:
            schema_name = f"{short_hash(values['schema'])}.json"
            files[schema_name] = values["schema"]
            values["schema_file"] = str(folder / schema_name)
    words += [*(shape or ()), *preset.get("last", ())]
    filled = (_PLACE.sub(lambda place: values.get(place[1], place[0]), word) for word in words)
    return CommandLine((program, *filled), bool(shape), files, tuple(preset.get("without", ())))


class CommandModel:
    """A model that a program asks.

    Args:
        config: Which program, and how many calls a day.
        folder: Where it works; is made, and holds nothing but what a preset puts there.
        allows: Given a number, counts a call of today; whether there were fewer before.
    """

    def __init__(self, config: LLMConfig, folder: Path, allows: Callable[[int], bool]) -> None:
        self._config = config
        self._folder = folder
        self._allows = allows

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Run the program once; see ``LLMClient.complete``. Temperature and length of the answer are its own.

        Raises:
            ModelUnavailable: If the program is missing, failed, gave no answer in time, or may not be called any more
                today.
        """
        line = command_line(self._config.command, self._config.model, request, self._folder)
        limit = self._config.calls_per_day
        try:
            allowed = not limit or self._allows(limit)
        except RunebookError as error:
            raise ModelUnavailable(f"today's calls cannot be counted: {error.message}", hint=error.hint) from error
        if not allowed:
            raise ModelUnavailable(
                f"the {limit} calls of today are used up.",
                hint="Raise llm.calls_per_day, or wait until tomorrow.",
            )
        seconds = min(timeout_seconds, self._config.deadline_seconds)
        try:
            _put(self._folder, line.files)
            status, output, errors = _ran(line, self._folder, _prompt(request, line), seconds)
        except OSError as error:
            raise ModelUnavailable(
                f"{line.words[0]} could not be started: {error.strerror or error}.", hint=_TRY
            ) from error
        if status is None:
            raise ModelUnavailable(
                f"{line.words[0]} gave no answer within {seconds:.3g} s and was ended.",
                hint=f"Raise llm.deadline_seconds, or choose a faster llm.model. {_TRY}",
            )
        return _completion(line.words[0], status, output, errors)


def _prompt(request: LLMRequest, line: CommandLine) -> str:
    """Everything in one text, as a program takes it."""
    parts = [system_text(request, "json_schema" if line.keeps_schema else "text", shown=line.keeps_schema)]
    for turn in request.turns:
        tag = "your_answer" if turn.role == "assistant" else "request"
        parts.append(f"<{tag}>\n{turn.text}\n</{tag}>" if len(request.turns) > 1 else turn.text)
    return "\n\n".join(parts)


def _put(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder, private to the user, with these files in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
            draft.write_text(text, encoding="utf-8")
            draft.chmod(0o600)
            draft.replace(path)


def _ran(line: CommandLine, folder: Path, prompt: str, seconds: float) -> tuple[int | None, bytes, bytes]:
    """Exit status (None where the time was up), what the program wrote, and the end of what it complained of."""
    environment = {name: value for name, value in os.environ.items() if name not in line.without} | {ASIDE: "1"}
    # Programs that came with a runtime find it beside them, also where a host was started without a shell's PATH.
    beside = str(Path(line.words[0]).parent)
    environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), beside])
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    process = subprocess.Popen(
        line.words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
        **apart,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    over, late, errors = threading.Event(), threading.Event(), bytearray()

    def watch() -> None:
        if not over.wait(seconds):
            late.set()
            _end(process)

    threads = [
        threading.Thread(target=watch, name="runebook-command-deadline", daemon=True),
        threading.Thread(target=_write, args=(process.stdin, prompt.encode()), daemon=True),
        threading.Thread(target=_keep_end, args=(process.stderr, errors), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        output = process.stdout.read(_OUTPUT_BYTES + 1)
        if len(output) > _OUTPUT_BYTES:
            _end(process)
        status = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        over.set()
        for thread in threads:
            thread.join(1.0)  # a grandchild may hold a pipe open; nothing of it is wanted any more
        process.stdout.close()
    return None if late.is_set() else status, output, bytes(errors)


def _write(stream: IO[bytes], data: bytes) -> None:
    with suppress(OSError), stream:  # it need not read everything
        stream.write(data)


def _keep_end(stream: IO[bytes], errors: bytearray) -> None:
    with suppress(OSError, ValueError), stream:
        while piece := os.read(stream.fileno(), _ERROR_BYTES):
            errors[:] = (errors + piece)[-_ERROR_BYTES:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that was started here, with all that it started."""
    if process.returncode is not None:
        return
    if sys.platform == "win32":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
    with suppress(OSError):
        process.kill()


def _completion(program: str, status: int, output: bytes, errors: bytes) -> Completion:
    """What the program answered: plain text, or the answer in the JSON that hosts put around it.

    Raises:
        ModelUnavailable: If it failed, said nothing, or far too much.
    """
    if len(output) > _OUTPUT_BYTES:
        raise ModelUnavailable(
            f"{program} wrote more than {_OUTPUT_BYTES:,} bytes and was ended.",
            hint="Run it by hand to see what it prints.",
        )
    text = output.decode("utf-8", "replace").strip()
    told = _envelope(text)
    failed = status != 0 or bool(told.get("is_error")) or bool(told.get("error"))
    names = word_table(__file__)["envelope"]
    answer = next((told[name] for name in names["answer"] if told.get(name) not in (None, "")), None)
    if failed or not (text and (answer is not None or not told)):
        fault = told.get("error") or answer or errors.decode("utf-8", "replace").strip() or text
        why = quoted(fault if isinstance(fault, str) else json.dumps(fault, ensure_ascii=False))
        raise ModelUnavailable(
            f"{program} ended with status {status}: {why}." if why else f"{program} said nothing (status {status}).",
            hint=f"Run it by hand to see what it lacks: a login, a quota, a newer version. {_TRY}",
        )
    if answer is not None:
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    usage = told.get("usage") if isinstance(told.get("usage"), dict) else {}
    counts = {kind: sum(_count(usage, name) for name in members) for kind, members in names["usage"].items()}
    return Completion(text, usage=TokenUsage(**counts, requests=1), model=PurePath(program).stem)


def _envelope(text: str) -> Mapping[str, Any]:
    """The JSON that hosts put around an answer; empty where the text is the answer."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    names = (*word_table(__file__)["envelope"]["answer"], "is_error", "error")
    return value if isinstance(value, dict) and any(name in value for name in names) else {}


def _count(usage: Any, name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0
