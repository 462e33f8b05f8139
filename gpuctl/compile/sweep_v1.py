"""The public form of sweeps: part of `spec_v1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import Spec, exactly_one, in_mapping, matching
from gpuctl.compile.scalars import kind_of

MOST_INDICES = 1000
"""The most indices of one sweep: otherwise a file of one line could declare any number of jobs."""
_MOST_CHARACTERS = 1000


def _text(value: Any) -> str:
    """A value as it is put into the variable; numbers as they are written."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | Decimal):
        fix = "give it a value, or remove it" if value is None else ""
        raise WrongValue("GPU2006", fix=fix, wanted="text, a number, true or false", found=kind_of(value))
    text = str(value)
    if len(text) > _MOST_CHARACTERS:
        raise WrongValue("GPU2018", found=f"{text[:40]}...", rule=f"at most {_MOST_CHARACTERS} characters")
    if "\0" in text:
        raise WrongValue("GPU2023", found=text, wanted="text: it has a NUL character")
    return text


MatrixKey = Annotated[
    str, Field(max_length=100), matching(r"[a-zA-Z_][a-zA-Z0-9_]*", "letters, digits and _: learning_rate")
]
MatrixValue = Annotated[
    str,
    PlainValidator(_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}),
]


def variable(key: str) -> str:
    """The environment variable of a key of a matrix."""
    return key.upper()


def _disagreements(data: Mapping[str, Any]) -> Iterator[WrongValue]:
    yield from exactly_one(data, "completions", "matrix")
    matrix = data.get("matrix")
    if not isinstance(matrix, dict):
        return
    seen: set[str] = set()
    combinations = 1
    for key, values in matrix.items():
        if isinstance(key, str) and variable(key) in seen:
            yield WrongValue("GPU2021", at=("matrix", key), found=variable(key))
        seen.add(variable(str(key)))
        if isinstance(values, list):
            yield from _twice(key, values)
            combinations = min(combinations * max(1, len(values)), 1 << 62)
    if combinations > MOST_INDICES:
        found = f"a matrix of {combinations} combinations"
        yield WrongValue("GPU2018", at=("matrix",), found=found, rule=f"at most {MOST_INDICES}")


def _twice(key: str, values: list[Any]) -> Iterator[WrongValue]:
    """Values that are equal as a variable, so that two indices would be the same."""
    seen: set[str] = set()
    for position, value in enumerate(values):
        if isinstance(value, str | int | Decimal):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if text in seen:
                yield WrongValue("GPU2021", at=("matrix", key, position), found=text)
            seen.add(text)


class Sweep(Spec):
    """Several jobs of one declaration, which differ in variables of their environment. Each is scheduled by itself."""

    completions: int | None = Field(
        None,
        ge=1,
        le=MOST_INDICES,
        description="So many jobs, NAME-0 to NAME-(n-1). The variable JOB_COMPLETION_INDEX has the number.",
    )
    matrix: (
        Annotated[
            dict[MatrixKey, Annotated[list[MatrixValue], Field(min_length=1, max_length=MOST_INDICES)]],
            Field(min_length=1, max_length=20),
        ]
        | None
    ) = Field(
        None,
        description="A job for each combination of values: {lr: [0.1, 0.01], depth: [2, 4]} gives the variables LR and "
        "DEPTH to four jobs. At most 1000 combinations.",
    )
    parallelism: int | None = Field(
        None, ge=1, le=MOST_INDICES, description="How many of its jobs may run at a time. Default: all."
    )

    _agrees = in_mapping(_disagreements)
