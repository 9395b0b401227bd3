"""Memory types: what a YAML file in ``schemas/`` declares.

Owns the vocabulary (fields, merge ops, derived averages) and its consistency rules. Does not read
files (``registry``) and does not merge or render (``merge``).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from memory_core.model.project_mode import ProjectMode

#: A field's value once it has been coerced to its declared type.
FieldValue = str | int | float | bool

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

#: A field's ``format``: one numeric placeholder, such as ``{:.1f}`` or ``{:,d}``, in literal text.
FORMAT = re.compile(r"[^{}\x00-\x1f\x7f]*\{:,?(?P<kind>\.[0-9]f|d)\}[^{}\x00-\x1f\x7f]*")

#: Trailer keys that belong to the system; a type may not declare a field of that name.
RESERVED_KEYS = (
    "memory_type",
    "version",
    "name",
    "tags",
    "category",
    "abstract",
    "overview",
    "created_at",
    "updated_at",
    "salience",
    "confidence",
    "source",
    "project",
    "private",
    "pinned",
    "expires_at",
    "active",
    "archived",
    "links",
    "rendered_sha256",
)


class FieldType(StrEnum):
    """Scalar types a field may have."""

    STRING = "string"
    INT64 = "int64"
    FLOAT32 = "float32"
    BOOL = "bool"


class MergeOp(StrEnum):
    """How a new value meets the stored one (DESIGN 4)."""

    PATCH = "patch"
    SUM = "sum"
    AVG = "avg"
    IMMUTABLE = "immutable"
    REPLACE = "replace"


class OperationMode(StrEnum):
    """Whether a second write with the same key updates (``upsert``) or adds (``add_only``)."""

    UPSERT = "upsert"
    ADD_ONLY = "add_only"


class Average(BaseModel):
    """A derived mean: ``scale * fields[sum] / fields[count]``; never stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sum: str
    count: str
    scale: float = 1.0


class MemoryField(BaseModel):
    """One declared field of a memory type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    type: FieldType = FieldType.STRING
    description: str = ""
    merge_op: MergeOp = MergeOp.PATCH
    avg: Average | None = None
    format: str | None = None

    @field_validator("format")
    @classmethod
    def _format_is_numeric(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        match = FORMAT.fullmatch(value)
        if match is None:
            raise ValueError(
                f"format {value!r} must hold exactly one of {{:.1f}} (0 to 9 decimals), {{:d}}, "
                "each also with a comma for thousands, and may have text around it"
            )
        declared = info.data.get("type")
        if declared in (FieldType.STRING, FieldType.BOOL):
            raise ValueError(f"a format needs type int64 or float32, not {declared}")
        if declared is FieldType.FLOAT32 and match["kind"] == "d":
            raise ValueError(f"format {value!r} is for int64; a float32 needs decimals, such as {{:.0f}}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name in RESERVED_KEYS:
            raise ValueError(f"field name '{self.name}' is reserved for metadata; choose another")
        if (self.merge_op is MergeOp.AVG) != (self.avg is not None):
            raise ValueError(f"field '{self.name}': merge_op avg and an avg block {{sum, count}} go together")
        numeric = self.type in (FieldType.INT64, FieldType.FLOAT32)
        if self.merge_op in (MergeOp.SUM, MergeOp.AVG) and not numeric:
            raise ValueError(f"field '{self.name}': merge_op {self.merge_op} needs type int64 or float32")
        return self


class MemoryType(BaseModel):
    """One kind of memory, as its YAML declares it.

    ``directory`` and ``filename_template`` decide where a memory lives; the fields named by
    ``filename_template`` are its *key*. Without ``content_template`` the type is in *simple mode*: the
    file's body is the ``content`` field. With it, in *template mode*: the body is rendered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
    description: str
    directory: Annotated[str, Field(pattern=r"^viking://")]
    filename_template: Annotated[str, Field(pattern=r"\.md$")]
    content_template: str | None = None
    fields: tuple[MemoryField, ...]
    enabled: bool = True
    operation_mode: OperationMode = OperationMode.UPSERT
    project: ProjectMode = ProjectMode.NAMED
    salience: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    expires_after_days: Annotated[float, Field(gt=0.0, le=36_500.0)] | None = None
    half_life_days: Annotated[float, Field(gt=0.0)] | None = None
    overview_template: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"type '{self.name}' declares a field twice")
        unknown = [key for key in PLACEHOLDER.findall(self.filename_template) if key not in names]
        if unknown:
            raise ValueError(f"filename_template names unknown fields: {', '.join(unknown)}")
        if self.content_template is None:
            if "content" not in names:
                raise ValueError("a type without content_template needs a field named 'content'")
        else:
            unknown = [key for key in PLACEHOLDER.findall(self.content_template) if key not in names]
            if unknown:
                raise ValueError(f"content_template names unknown fields: {', '.join(unknown)}")
        for field in self.fields:
            if field.avg is not None:
                for operand in (field.avg.sum, field.avg.count):
                    if operand not in names:
                        raise ValueError(f"field '{field.name}': avg refers to unknown field '{operand}'")
        return self

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Names of the fields that form the file name, in template order, each once."""
        return tuple(dict.fromkeys(PLACEHOLDER.findall(self.filename_template)))

    @property
    def template_mode(self) -> bool:
        """Whether the body is rendered from the fields."""
        return self.content_template is not None

    def field(self, name: str) -> MemoryField | None:
        """The declared field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)
