"""The public form of templates, and of what a job says of the one it uses: part of `spec_v1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import DeclarationV1, Name, Spec, in_mapping, matching, unique, visible
from gpuctl.compile.scalars import kind_of

PARAMETER = "$parameter"
"""`{$parameter: NAME}` in a template stands for a value. No field, variable or label can have this name."""


def _argument(value: Any) -> Any:
    if isinstance(value, str | int | Decimal):
        return value
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return value
    fix = "give it a value, or remove it" if value is None else ""
    raise WrongValue("GPU2006", fix=fix, wanted="text, a number, true, false, or a list of texts", found=kind_of(value))


def _argument_or_nothing(value: Any) -> Any:
    return None if value is None else _argument(value)


def _number(value: Any) -> Any:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return value
    raise WrongValue("GPU2006", wanted="a number", found=kind_of(value))


_ARGUMENTS = [
    {"type": "string"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}},
]
Argument = Annotated[Any, PlainValidator(_argument), WithJsonSchema({"anyOf": _ARGUMENTS})]
OptionalArgument = Annotated[
    Any, PlainValidator(_argument_or_nothing), WithJsonSchema({"anyOf": [*_ARGUMENTS, {"type": "null"}]})
]
Number = Annotated[Any, PlainValidator(_number), WithJsonSchema({"type": "number"})]
ParameterName = Annotated[
    str, Field(max_length=63), matching(r"[a-zA-Z][a-zA-Z0-9]*", "the name of a parameter: learningRate")
]


class TemplateUse(Spec):
    """The template that a job is made of."""

    name: Name = Field(description="A Template of the job's project, else of the cluster.")
    with_: dict[ParameterName, Argument] = Field(
        {}, max_length=100, alias="with", description="The template's parameters: {learningRate: 0.1}."
    )


def _bounds_of_numbers(parameter: Mapping[str, Any]) -> Iterator[WrongValue]:
    for bound in ("minimum", "maximum"):
        if parameter.get(bound) is not None and parameter.get("type") != "number":
            rule = "only a parameter of type number has bounds"
            yield WrongValue("GPU2018", at=(bound,), fix="write type: number", found=bound, rule=rule)


class Parameter(Spec):
    """What a job may say, or has to, that uses the template."""

    type: Literal["text", "number", "boolean", "list"] = Field(
        "text", description="What the value is; a list is of texts. An amount with a unit, such as 32Gi, is text."
    )
    default: OptionalArgument = Field(
        None,
        description="The value where a job gives none; null: the fields that have it are left out. Without a default a "
        "job has to give a value.",
    )
    enum: Annotated[list[Argument], unique()] = Field(
        [], max_length=100, description="The values that are allowed, of text or numbers. Default: all of the type."
    )
    minimum: Number | None = Field(None, description="The least number that is allowed.")
    maximum: Number | None = Field(None, description="The largest number that is allowed.")
    description: Annotated[str, AfterValidator(visible)] = Field(
        "", max_length=500, description="What it is for, told where a job gives a wrong value, or none."
    )

    _is_consistent = in_mapping(_bounds_of_numbers)


class TemplateMetadata(Spec):
    """What a template is called, and whose it is."""

    name: Name = Field(description="Unique among the templates of its project, or of the cluster: a DNS label.")
    project: Name | None = Field(
        None, description="The project whose jobs may use it. Default: it is the cluster's, and all jobs may."
    )


class TemplateSpec(Spec):
    """What jobs are made of."""

    parameters: dict[ParameterName, Parameter] = Field(
        {}, max_length=100, description="What jobs fill in, by name; in job as {$parameter: NAME}."
    )
    job: dict[str, Any] = Field(
        min_length=1,
        description="The spec of a Job. {$parameter: NAME} stands for the value of a parameter, wherever a value may "
        "be; it is a value of its own, never a part of a text.",
    )


class TemplateV1(DeclarationV1):
    """A job with parameters, of which other jobs are made."""

    kind: Literal["Template"] = Field(description="What this declares.")
    metadata: TemplateMetadata = Field(description="Its name, and its project where it has one.")
    spec: TemplateSpec = Field(description="The template.")
