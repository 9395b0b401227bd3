"""The six MCP tools, made of the requests that an open store answers.

Owns what each takes; titles and descriptions are in the table beside this module. Every result carries the same facts
as text and as structured content (``rendering``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from memory_core.core.command import Arg, Argument, arguments
from memory_core.core.errors import InvalidInput, RunebookError
from memory_core.core.memory.metadata import METADATA, MetadataField
from memory_core.core.memory.operations import GROUPS, MEMBER_TYPES
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.text.word_table import word_table
from server import rendering
from server.fail_fast import fail_fast_type, with_few_unknown
from server.foreign_json import MOST_VALUES, holds_many
from server.protocol.call_progress import told_of, wants_progress
from server.protocol.session import MemorySession
from server.protocol.tool_schemas import tool_schema

if TYPE_CHECKING:
    from memory_core.core.memory.results import ReadResult
    from memory_core.runebook import Runebook

_CRASH_HINT = "Look into the server's log (stderr), then try again; a commit is safe to repeat with a request_id."
FIELDS_HINT = "Send exactly the arguments that the tool's schema names."

_PRIVATE_MODE = Argument(
    "private_mode",
    bool | None,
    Arg(help="Alone: true keeps nothing of what follows, when the user wants that; false ends it."),
)
#: Arguments of a commit that store nothing, and what they are for: they are looked for under other names.
_ALONE = {
    "forget": 'forget={"query": "…"} deletes memories, after a look at them',
    "undo": 'undo="last" takes a commit back',
    _PRIVATE_MODE.name: f"{_PRIVATE_MODE.name}=true keeps nothing of what follows",
}
_Answer = CallToolResult | InputRequiredResult
#: Answers one call of a tool, given its session and context and what the call holds.
Answering = Callable[[MemorySession, Context[Any, Any], dict[str, Any]], _Answer]


class StrictTool(Tool):
    """A tool that answers wrong arguments in words a model can act on, and refuses unknown ones."""

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Validate, then run; a wrong argument becomes an error result that names it."""
        try:
            arguments = given_arguments(self.fn_metadata.pre_parse_json(arguments), self.parameters)
        except InvalidInput as error:
            return rendering.failure(str(error))
        arguments = with_few_unknown(arguments, self.parameters["properties"])
        for name in self.parameters.get("required", ()):
            if name in arguments and (_is_empty(arguments[name]) or not str(arguments[name]).strip()):
                about = self.parameters["properties"][name].get("description", name)
                return rendering.failure(f"'{name}' is empty. Next: Send it: {about}")
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            return rendering.failure(_argument_errors(error, list(self.parameters["properties"])))
        call = partial(super().run, arguments, context, convert_result)
        try:
            return await (told_of(context, call) if wants_progress(context) else call())
        except UnexpectedToolError as error:  # the SDK logs its cause; the type must stay
            raise UnexpectedToolError(f"{self.name} failed unexpectedly. Next: {_CRASH_HINT}") from error


class _Arguments(FuncMetadata):
    """Arguments of a tool; some hosts send objects as JSON text."""

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Read JSON text, but not where text is meant: a memory may itself be JSON, or the word ``null``.

        Raises:
            InvalidInput: If such a text holds very many values.
        """
        texts = {
            name
            for name, info in self.arg_model.model_fields.items()
            if info.annotation is str or str in get_args(info.annotation)
        }
        for name, value in data.items():
            if name not in texts and isinstance(value, str) and holds_many(value.encode("utf-8", "replace")):
                raise InvalidInput(
                    f"'{name}' holds more than {MOST_VALUES:,} values.", hint="Send it in several calls."
                )
        parsed = super().pre_parse_json({name: value for name, value in data.items() if name not in texts})
        return {name: parsed.get(name, value) for name, value in data.items()}


#: Members of operations whose empty text means something: nothing in the place of a text, no date any more.
_MEANT_EMPTY = frozenset({"search", "replace", "expires_at"})
_CLEANED_ARGUMENTS = ("fields", "filter", "forget", "operations", "tags", "tool")
#: Arguments of a commit that alone ask for nothing.
_AROUND_COMMIT = frozenset({"session_id", "request_id", "project", "private", "space", "dry_run"})


def given_arguments(sent: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were meant: clients fill optional ones with null, "", [] or {}, and so do constrained models.

    Args:
        sent: As they came in.
        schema: Of the tool; what it requires stays, so that its absence can be told.
    """
    required = schema.get("required", ())
    filled = {name: _without_filling(value) if name in _CLEANED_ARGUMENTS else value for name, value in sent.items()}
    if isinstance(sent.get("messages"), list):
        filled["messages"] = [message for message in sent["messages"] if not _is_empty(_without_filling(message))]
    given = {name: value for name, value in filled.items() if name in required or not _is_empty(value)}
    asks = {name for name, value in given.items() if name not in _AROUND_COMMIT and not _says_nothing(name, value)}
    if asks:
        return {name: value for name, value in given.items() if name in asks or name in _AROUND_COMMIT}
    if "session_id" in given and isinstance(sent.get("operations"), dict):
        given["operations"] = sent["operations"]  # nothing worth keeping is an answer to a brief
    return given


def _says_nothing(name: str, value: Any) -> bool:
    """Whether the argument of a commit asks for nothing beside others: no operation, nothing to forget, no mode."""
    if name in ("operations", "forget") and isinstance(value, dict):
        return not any(member for key, member in value.items() if name == "forget" or key in GROUPS)
    return name == _PRIVATE_MODE.name and value is False


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _without_filling(node: Any) -> Any:
    """A value without members and items that say nothing; what was empty itself stays, as it may be meant."""
    if not isinstance(node, list | dict) or not node:
        return node
    if isinstance(node, list):
        return [filled for item in node if not _is_empty(filled := _without_filling(item))]
    found = {
        name: filled
        for name, value in node.items()
        if not _is_empty(filled := _without_filling(value))
        or (value == "" and name in _MEANT_EMPTY)
        or (value is None and name in ("eq", "ne"))
        or (isinstance(value, list | dict) and not value)
    }
    return {} if found and all(value == "" for value in found.values()) else found


def build_tools(session: MemorySession) -> list[Tool]:
    """The six tools, bound to a lazily opened store."""
    reading = [
        _tool(session, name, _parameters(request), partial(_read, request, answer))
        for name, (request, answer) in _READING.items()
    ]
    return [_tool(session, "commit_memory", _commit_parameters(session), _commit), *reading]


#: The tools that read: their requests, and how a store answers one.
_READING: Mapping[str, tuple[Any, Callable[[Runebook, Any], CallToolResult]]] = {
    "find": (FindRequest, lambda memory, request: rendering.find_result(memory.find(request))),
    "read": (ReadRequest, lambda memory, request: rendering.read_result(partial(_page, memory, request))),
    "ls": (ListRequest, lambda memory, request: rendering.listing_result(memory.ls(request))),
    "tree": (TreeRequest, lambda memory, request: rendering.listing_result(memory.tree(request))),
    "retrieve": (
        RetrieveRequest,
        lambda memory, request: rendering.retrieve_result(memory.retrieve(request, fit=rendering.smaller_budget)),
    ),
}


def _page(memory: Runebook, request: ReadRequest, limit_chars: int) -> ReadResult:
    return memory.read(replace(request, limit_chars=limit_chars))


def _read(
    request: Any,
    answer: Callable[[Runebook, Any], CallToolResult],
    session: MemorySession,
    ctx: Context[Any, Any],
    given: dict[str, Any],
) -> _Answer:
    """Answer a tool that reads; where a call may name its project, a client that does not is asked for its own."""
    memory, workspace = session.memory(), session.workspace
    settings = memory.config.project
    here = workspace.here(ctx, settings, given["project"]) if "project" in given else workspace.known(ctx, settings)
    return here if isinstance(here, InputRequiredResult) else answer(memory, request(**given, here=here))


def _commit(session: MemorySession, ctx: Context[Any, Any], given: dict[str, Any]) -> _Answer:
    """Commit, or do what stands alone."""
    private_mode = given.pop(_PRIVATE_MODE.name)
    request = _commit_request(session, given)
    if private_mode is not None:
        if request.given:
            raise InvalidInput(
                f"{_PRIVATE_MODE.name} stands alone, not beside {', '.join(request.given)}: nothing was done.",
                hint=f"Send {_PRIVATE_MODE.name} in a call of its own, then the rest.",
            )
        switched = session.private_mode.switch(ctx, private_mode)
        session.tell_hooks(private=private_mode)
        return rendering.receipt_result(switched)
    if not request.given and not request.brief:
        alone = _told_alone([*(argument.name for argument in session.features.commit_arguments), _PRIVATE_MODE.name])
        raise InvalidInput(
            "this call holds nothing to store.", hint=f"Send memory_content, operations or messages. Or alone:{alone}"
        )
    memory = session.memory().destination(request)
    if request.alone:
        here = session.workspace.known(ctx, memory.config.project)
        return rendering.receipt_result(memory.commit(replace(request, here=here)))
    found = session.workspace.here(ctx, memory.config.project, request.project)
    if isinstance(found, InputRequiredResult):
        return found
    sampled = request.messages is not None and not request.dry_run and _samples(memory, ctx)
    request = replace(request, here=found, extract=not sampled)
    if not sampled:
        return rendering.receipt_result(memory.commit(request))
    # Client models extract it: the conversation is only stored, then the loop asks them.
    outcome = session.sampling.run(
        lambda: memory.extraction(memory.commit(request)), ctx, memory.config.llm.deadline_seconds
    )
    return outcome if isinstance(outcome, InputRequiredResult) else rendering.receipt_result(outcome)


def _commit_request(session: MemorySession, given: dict[str, Any]) -> CommitRequest:
    """The request in a call's arguments: metadata and what stands alone have members of their own there."""
    alone = {argument.name: given.pop(argument.name) for argument in session.features.commit_arguments}
    metadata = {field.name: given.pop(field.name) for field in METADATA if "commit" in field.given_by}
    return CommitRequest(
        **given,
        metadata={name: value for name, value in metadata.items() if value is not None},
        alone={name: value for name, value in alone.items() if value is not None},
    )


def _samples(memory: Runebook, ctx: Context[Any, Any]) -> bool:
    """Whether conversations are extracted by the model of the client behind this call."""
    if memory.config.llm.provider != "sampling" or memory.config.extractor == "none":
        return False
    from server.protocol.sampling import offers_sampling

    return offers_sampling(ctx)


def _parameters(request: Any) -> list[inspect.Parameter]:
    """The arguments of a request that a model may send."""
    return [_parameter(argument) for argument in arguments(request) if "mcp" in argument.arg.surfaces]


def _commit_parameters(session: MemorySession) -> list[inspect.Parameter]:
    """Those of one memory's metadata are arguments of their own, and so is what stands alone."""
    found: list[inspect.Parameter] = []
    for parameter in _parameters(CommitRequest):
        if parameter.name == "metadata":
            found += [_parameter(_of_metadata(field)) for field in METADATA if "commit" in field.given_by]
        elif parameter.name == "dry_run":
            found += [_parameter(_PRIVATE_MODE), *map(_parameter, session.features.commit_arguments), parameter]
        else:
            found.append(parameter)
    return found


def _of_metadata(field: MetadataField) -> Argument:
    return Argument(field.name, MEMBER_TYPES[field.kind] | None, Arg(help=field.description))


def _parameter(argument: Argument) -> inspect.Parameter:
    arg, kind = argument.arg, argument.type
    if arg.choices:
        one: Any = Literal.__getitem__(arg.choices)
        kind = one | None if type(None) in get_args(kind) else one
    kind = fail_fast_type(kind)
    info = Field(description=arg.help or None, ge=arg.least, le=arg.most)
    default = inspect.Parameter.empty if argument.required else argument.default
    return inspect.Parameter(
        argument.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _tool(session: MemorySession, name: str, parameters: Sequence[inspect.Parameter], answering: Answering) -> Tool:
    def call(ctx: Context[Any, Any], **given: Any) -> _Answer:
        try:
            answer = answering(session, ctx, given)
            session.memory().recalls.note_call()
            return answer
        except RunebookError as error:  # ours are for the model to act on
            return rendering.failure(str(error))

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context[Any, Any])
    call.__signature__ = inspect.Signature([context, *parameters], return_annotation=_Answer)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in (context, *parameters)} | {"return": _Answer}
    about, reads = word_table(__file__)[name], name in _READING
    tool = StrictTool.from_function(  # a classmethod of ``Tool`` that builds ``cls``
        call,
        name=name,
        description=about["description"],
        title=about["title"],
        annotations=ToolAnnotations(
            title=about["title"],
            read_only_hint=reads,
            destructive_hint=not reads,
            idempotent_hint=reads,
            open_world_hint=False,
        ),
        structured_output=False,
    )
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    tool.parameters = tool_schema(name, model)
    tool.fn_metadata = _Arguments(arg_model=model)
    return tool


def _argument_errors(error: ValidationError, known: list[str]) -> str:
    lines = []
    for fault in error.errors()[:5]:
        where = ".".join(str(part) for part in fault["loc"])
        said = "is not an argument of this tool" if fault["type"] == "extra_forbidden" else fault["msg"]
        lines.append(f"'{where}': {said}.")
    return f"{' '.join(lines)} Next: {FIELDS_HINT} They are: {', '.join(known)}.{_told_alone(known)}"


def _told_alone(known: Sequence[str]) -> str:
    """What a commit does that is not storing, as far as there are arguments for it."""
    told = [about for name, about in _ALONE.items() if name in known]
    return f" {'; '.join(told)}." if told else ""
