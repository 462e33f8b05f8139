"""The kinds of values the public form has: names, amounts, durations, each with its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, PlainValidator, Tag, WithJsonSchema
from pydantic.alias_generators import to_camel

from gpuctl.compile import amounts
from gpuctl.compile.amounts import WrongValue
from gpuctl.model.units import MOST_NODE_GPUS

API_VERSION = "gpuctl.dev/v1"
INT32 = 2**31 - 1
LABEL_PATTERN = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class Spec(BaseModel):
    """What all parts of a declaration have in common: no unknown fields, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel, defer_build=True)


def fields_of(model: type[Spec]) -> Iterator[tuple[str, Any, Any]]:
    """Each field by the name it is written with, its type, and what is written for its default; None for no default."""
    for name, field in model.model_fields.items():
        is_written = not field.is_required() and field.default is not None
        yield field.alias or to_camel(name), field.annotation, field.default if is_written else None


def matching(pattern: str, wanted: str) -> AfterValidator:
    """Text of that form; `wanted` says what it would be."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value):
            return value
        raise WrongValue("GPU2023", found=value, wanted=wanted)

    return AfterValidator(check)


def visible(value: str) -> str:
    """Text without control characters, marks that turn its direction, and others that can't be seen."""
    if value.isprintable():
        return value
    raise WrongValue("GPU2023", found=value, wanted="text that can be seen: it has invisible characters")


def unique(key: str = "") -> AfterValidator:
    """No two entries alike, or with the same value of a field."""

    def check(entries: Sequence[Any]) -> Sequence[Any]:
        seen = set()
        for position, entry in enumerate(entries):
            name = getattr(entry, key, entry) if key else entry
            if name in seen:
                at = (position, to_camel(key)) if name is not entry else (position,)
                raise WrongValue("GPU2021", at=at, found=str(name))
            seen.add(name)
        return entries

    return AfterValidator(check)


def positive(value: int | None) -> int | None:
    """More than zero, where it is given."""
    if value == 0:
        raise WrongValue("GPU2018", found=0, rule="it must be more than zero")
    return value


def form_of(value: Any) -> str:
    """The tag of what may be a mapping or plain."""
    return "(mapping)" if isinstance(value, dict) else "(plain)"


_NUMBER = {"type": "number", "minimum": 0}
_GPUS = {**_NUMBER, "maximum": amounts.MOST_GPUS}
_WORKER_GPUS = {**_NUMBER, "maximum": MOST_NODE_GPUS}
_CPUS = {**_NUMBER, "maximum": amounts.MOST_CPUS}
_BYTES = {**_NUMBER, "maximum": amounts.MOST_MEMORY_PI << 50}
_NUMBER_TEXT = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,3})?$"}

Name = Annotated[
    str,
    AfterValidator(amounts.label),
    WithJsonSchema({"type": "string", "pattern": LABEL_PATTERN, "maxLength": amounts.NAME_LENGTH}),
]
Subdomain = Annotated[str, AfterValidator(amounts.subdomain)]
Gpus = Annotated[int, PlainValidator(amounts.gpus), WithJsonSchema({"anyOf": [_GPUS, _NUMBER_TEXT]})]
WorkerGpus = Annotated[
    int, PlainValidator(amounts.worker_gpus), WithJsonSchema({"anyOf": [_WORKER_GPUS, _NUMBER_TEXT]})
]
Duration = Annotated[
    int,
    PlainValidator(amounts.duration),
    WithJsonSchema({
        "type": "string",
        "pattern": r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
        "description": f"At most {amounts.MOST_DAYS}d.",
    }),
]
Memory = Annotated[
    int,
    PlainValidator(amounts.memory),
    WithJsonSchema({
        "anyOf": [_BYTES, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"}]
    }),
]
Cpu = Annotated[
    int,
    PlainValidator(amounts.cpu),
    WithJsonSchema({"anyOf": [_CPUS, {"type": "string", "pattern": r"^[0-9]+(m|\.[0-9]{1,3})?$"}]}),
]
_PATH = WithJsonSchema({"type": "string", "pattern": "^/", "maxLength": amounts.PATH_LENGTH})
AbsolutePath = Annotated[str, AfterValidator(amounts.absolute_path), _PATH]
MOST_POOLS = 1000
ByPool = Annotated[dict[Name, Gpus], Field(max_length=MOST_POOLS)]
Quota = Annotated[Annotated[Gpus, Tag("(plain)")] | Annotated[ByPool, Tag("(mapping)")], Discriminator(form_of)]
Limit = Annotated[Duration, AfterValidator(positive)]
Image = Annotated[str, Field(max_length=1024), matching(r"[!-~]+", "an image reference")]
EnvName = Annotated[
    str, Field(max_length=253), matching(r"[-._a-zA-Z][-._a-zA-Z0-9]*", "a name of an environment variable")
]
EnvText = Annotated[str, matching(r"[^\0]*", "text: it has a NUL character")]
CommandText = Annotated[str, matching(r"[^\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*", "text without control characters")]
Owner = Annotated[
    str,
    Field(max_length=253),
    matching(r"@[\w.-]+(/[\w.-]+)?|[!-?A-~]+@[!-?A-~]+", "an owner: @user, @organisation/team or an e-mail address"),
]
Account = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(visible)]
_LABEL_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_PREFIX = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?"
LabelKey = Annotated[str, matching(_LABEL_PREFIX + _LABEL_PART, "the key of a label: topology.kubernetes.io/rack")]
LabelValue = Annotated[str, matching(f"({_LABEL_PART})?", "the value of a label: at most 63 letters, digits, - _ .")]
SomePools = Annotated[list[Name], Field(min_length=1, max_length=100), unique()]
Priority = Annotated[int, Field(ge=-INT32, le=INT32)]


def exactly_one(**fields: object) -> None:
    """Refuse none and several of these fields."""
    given = [name for name, value in fields.items() if value is not None]
    if len(given) != 1:
        names = " and ".join([", ".join(list(fields)[:-1]), list(fields)[-1]])
        at = (given[1],) if given else ()
        raise WrongValue("GPU2019", at=at, fields=names, found="none" if not given else " and ".join(given))
