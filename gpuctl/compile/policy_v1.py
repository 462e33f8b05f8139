"""The public form of policies, apiVersion gpuctl.dev/v1: part of `spec_v1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import Spec, exactly_one, in_mapping, matching, visible

_Glob = Annotated[str, Field(max_length=253), AfterValidator(visible)]


class Match(Spec):
    """Which declarations a policy is about."""

    kind: Literal["Cluster", "Department", "Project", "Job"] = Field(description="The kind of declaration.")
    projects: list[_Glob] = Field(
        ["*"],
        max_length=1000,
        description="Projects it holds for, with * and ?. Below projects/<p>/ it holds for p alone.",
    )
    except_: list[_Glob] = Field(
        [], max_length=1000, alias="except", description="Projects it does not hold for, with * and ?."
    )


def _rule_mistakes(data: Mapping[str, Any]) -> Iterator[WrongValue]:
    yield from exactly_one(data, "schema", "cel")
    if data.get("field") is not None and data.get("cel") is None:
        yield WrongValue("GPU4009", at=("field",))


class PolicySpec(Spec):
    """A rule over declarations."""

    match: Match = Field(description="Which declarations the rule is about.")
    severity: Literal["error", "warning", "audit"] = Field(
        "error",
        description="error: breaking it makes the tree invalid. warning: it is told. audit: it is only counted, and "
        "listed by `gpuctl policy list` and `plan`.",
    )
    schema_: dict[str, Any] | None = Field(
        None,
        alias="schema",
        description="A JSON Schema (2020-12) that each such declaration, as written, must match. Its patterns are "
        "RE2's.",
    )
    cel: str | None = Field(
        None,
        min_length=1,
        max_length=4000,
        description="A CEL expression that is true of each such declaration. It reads object, old, project, cluster, "
        "total and oldTotal.",
    )
    field: Annotated[str, matching(r"[A-Za-z]+(\.[A-Za-z]+){0,9}", "a field such as spec.maxDuration")] | None = Field(
        None, description="With cel: the field to be marked where it is broken. Default: the one that cel reads."
    )
    message: str = Field(min_length=1, max_length=4000, description="What to tell people whose declaration breaks it.")

    _one_rule = in_mapping(_rule_mistakes)
