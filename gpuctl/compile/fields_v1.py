"""The types of values in the public form: names, amounts, durations, each with its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails

from gpuctl.compile import amounts
from gpuctl.compile.amounts import WrongValue
from gpuctl.model.units import MOST_NODE_GPUS

API_VERSION = "gpuctl.dev/v1"
INT32 = 2**31 - 1
LABEL_PATTERN = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class Spec(BaseModel):
    """What all parts of a declaration have in common: no unknown fields, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel, defer_build=True)


class DeclarationV1(Spec):
    """What all declarations begin with."""

    api_version: Literal["gpuctl.dev/v1"] = Field(description="The version of this form.")


def fields_of(model: type[Spec]) -> Iterator[tuple[str, Any, Any]]:
    """Each field: its name as written, its type, and its default as written; None for no default."""
    for name, field in model.model_fields.items():
        is_written = not field.is_required() and field.default is not None
        yield field.alias or to_camel(name), field.annotation, field.default if is_written else None


def written(name: str) -> str:
    """The name of a field as written in YAML."""
    return to_camel(name)


def matching(pattern: str, wanted: str) -> AfterValidator:
    """A validator of text by a pattern; `wanted` describes the right form in the message."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value):
            return value
        raise WrongValue("GPU2023", found=value, wanted=wanted)

    return AfterValidator(check)


def visible(value: str) -> str:
    """Refuse control characters, marks that change the direction of text, and other invisible characters."""
    if value.isprintable():
        return value
    raise WrongValue("GPU2023", found=value, wanted="text that can be seen: it has invisible characters")


def unique(key: str = "") -> WrapValidator:
    """Refuse equal entries, or entries with equal values of a field; also if another entry has a mistake."""

    def check(entries: Any, made: Callable[[Any], Any]) -> Any:
        def twice(values: Sequence[Any]) -> Iterator[WrongValue]:
            seen = set()
            for position, entry in enumerate(values):
                name = _value_of(entry, key)
                if name in seen:
                    at = (position, to_camel(key)) if name is not entry else (position,)
                    yield WrongValue("GPU2021", at=at, found=str(name))
                seen.add(name)

        return _with_mistakes(made, entries, twice)

    return WrapValidator(check)


def _value_of(entry: Any, key: str) -> Any:
    """The value of the field that must differ; the entry may be a model or only its written form."""
    value = (
        entry.get(to_camel(key)) if key and isinstance(entry, dict) else getattr(entry, key, entry) if key else entry
    )
    return value if isinstance(value, str | int) and value else object()


def positive(value: int | None) -> int | None:
    """Refuse zero."""
    if value == 0:
        raise WrongValue("GPU2018", found=0, rule="it must be more than zero")
    return value


def at_least_a_minute(value: int) -> int:
    """Refuse less than a minute. In milliseconds."""
    if value < 60_000:
        raise WrongValue("GPU2018", found=f"{value // 1000}s", rule="it must be at least 1m")
    return value


def of_whole_seconds(value: int) -> int:
    """Refuse anything but whole seconds, 1 or more, which is what Kubernetes counts in. In milliseconds."""
    if value < 1000 or value % 1000:
        raise WrongValue("GPU2018", found=f"{value}ms", rule="it must be a number of whole seconds, 1s or more")
    return value


def at_least_the_usual(value: int) -> int:
    """Refuse less than 30 s, the grace that pods have anyway. In milliseconds."""
    if value < 30_000:
        raise WrongValue("GPU2018", found=f"{value // 1000}s", rule="it must be at least 30s")
    return value


def form_of(value: Any) -> str:
    """The tag of a value that may be a mapping or plain."""
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
Grace = Annotated[Duration, AfterValidator(of_whole_seconds)]
Ttl = Annotated[Duration, AfterValidator(at_least_a_minute)]
Image = Annotated[str, Field(max_length=1024), matching(r"[!-~]+", "an image reference")]
EnvName = Annotated[
    str, Field(max_length=253), matching(r"[-._a-zA-Z][-._a-zA-Z0-9]*", "a name of an environment variable")
]
EnvText = Annotated[str, matching(r"[^\0]*", "text: it has a NUL character")]
CommandText = Annotated[str, matching(r"[^\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*", "text without control characters")]
OWNER = r"@[\w.-]+(/[\w.-]+)?|[!-?A-~]+@[!-?A-~]+"
AN_OWNER = "an owner: @user, @organisation/team or an e-mail address"
Owner = Annotated[str, Field(max_length=253), matching(OWNER, AN_OWNER)]
Account = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(visible)]
_LABEL_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_PREFIX = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?"
LABEL_KEY = _LABEL_PREFIX + _LABEL_PART
LabelKey = Annotated[str, matching(LABEL_KEY, "the key of a label: topology.kubernetes.io/rack")]
LabelValue = Annotated[str, matching(f"({_LABEL_PART})?", "the value of a label: at most 63 letters, digits, - _ .")]
SomePools = Annotated[list[Name], Field(min_length=1, max_length=100), unique()]
Priority = Annotated[int, Field(ge=-INT32, le=INT32)]


ONE_IS_MISSING = "write one of them"
"""The fix for a mistake where exactly one of several fields is required and none is given; identifies such mistakes."""


def exactly_one(data: Mapping[str, Any], *fields: str) -> Iterator[WrongValue]:
    """Require exactly one of these fields, in the data as written."""
    given = [name for name in fields if data.get(name) is not None]
    if len(given) != 1:
        names = " and ".join([", ".join(fields[:-1]), fields[-1]])
        at = (given[1],) if given else ()
        fix = "" if given else ONE_IS_MISSING
        yield WrongValue("GPU2019", at=at, fix=fix, said=one_of_several(names, given))


def one_of_several(names: str, given: Sequence[str]) -> str:
    """The words of GPU2019 about fields of which exactly one is required."""
    return f"exactly one of {names} is required here, not {' and '.join(given) or 'none'}"


def in_mapping(
    mistakes: Callable[[Mapping[str, Any]], Iterable[WrongValue]],
    completed: Callable[[dict[str, Any]], dict[str, Any]] = lambda data: data,
) -> Any:
    """Validate a model by its fields, and by rules between them: `mistakes` checks those in the data as written.

    `completed`: adds to the written data the fields that follow from it.
    """
    return in_context(lambda data, _: mistakes(data), lambda data, _: completed(data))


def in_context(
    mistakes: Callable[[Mapping[str, Any], Any], Iterable[WrongValue]],
    completed: Callable[[dict[str, Any], Any], dict[str, Any]],
) -> Any:
    """As `in_mapping`; both functions also get the context that `check_shape` was given."""

    def check(_model: Any, data: Any, made: Callable[[Any], Any], info: ValidationInfo) -> Any:
        known = info.context

        def whole(value: Any) -> Any:
            return made(completed(value, known) if isinstance(value, dict) else value)

        return _with_mistakes(whole, data, lambda _: mistakes(data, known) if isinstance(data, dict) else ())

    validator: Any = model_validator(mode="wrap")
    return validator(classmethod(check))


def _with_mistakes(made: Callable[[Any], Any], data: Any, mistakes: Callable[[Any], Iterable[WrongValue]]) -> Any:
    """Raise ValidationError with the mistakes of both kinds. pydantic stops at mistakes in a part, but all mistakes of
    a file are reported at once."""
    errors: list[InitErrorDetails] = []
    value = data
    try:
        value = made(data)
    except ValidationError as error:
        errors = [
            InitErrorDetails(type=one["type"], loc=one["loc"], input=one["input"], ctx=one.get("ctx", {}))
            for one in error.errors(include_url=False)
        ]
    if not errors or isinstance(data, list | dict):
        # A field may be missing because its name has a mistake: report that as one mistake.
        unknown = any(one["type"] == "extra_forbidden" and len(one.get("loc", ())) == 1 for one in errors)
        errors += [
            InitErrorDetails(type="value_error", input=data, ctx={"error": wrong})
            for wrong in mistakes(value)
            if not (unknown and wrong.fix == ONE_IS_MISSING)
        ]
    if errors:
        raise ValidationError.from_exception_data("", errors)
    return value
