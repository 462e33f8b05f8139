"""Policies: JSON Schema over declarations as they are written, each mistake at the YAML node that causes it.

No reference out of a schema is followed, so nothing is ever fetched.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from gpuctl.compile.declarations import Declaration, Declarations
from gpuctl.compile.document import Document, Path
from gpuctl.compile.spec_v1 import Match, PolicyV1
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.model.memo import Memo

_SCHEMA: Path = ("spec", "schema")
_NOTHING: dict[str, Any] = {"not": {}}
"""What `false` means, in a form for which jsonschema tells the place."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Part of a policy's schema, and the path in a declaration to what it is about."""

    path: Path
    validator: Draft202012Validator


Breaches: TypeAlias = Memo[tuple[Declaration[Any], Document], tuple[Diagnostic, ...]]
"""How declarations break policies."""


def check_policies(declarations: Declarations, breaches: Breaches) -> Iterator[Diagnostic]:
    """What is wrong with policies, and which declarations break them.

    Cost: policies times declarations they match, of which one or the other was not there before.
    """
    breaches.turn()
    for policy in declarations.policies:
        document, spec = policy.document, policy.model.spec
        if spec.cel is not None:
            yield document.diagnostic("GPU4003", document.key_span(("spec", "cel")))
        if spec.schema_ is None:
            continue
        mistakes = list(_schema_mistakes(document, spec.schema_))
        yield from mistakes
        if not mistakes:
            yield from _check(policy, declarations, breaches)


def _check(policy: Declaration[PolicyV1], declarations: Declarations, breaches: Breaches) -> Iterator[Diagnostic]:
    spec = policy.model.spec
    rules = list(_rules((), spec.schema_))
    for document in _matching(spec.match, declarations):
        try:
            yield from breaches.get((policy, document), (), partial(_breaches, policy, rules, document))
        except (Unresolvable, RecursionError) as error:
            problem = "it refers to itself without end"
            if isinstance(error, Unresolvable):
                problem = f"it refers to {error.ref}, which is not in it"
            yield policy.document.diagnostic("GPU4002", policy.document.key_span(_SCHEMA), {"problem": problem})
            return


def _breaches(policy: Declaration[PolicyV1], rules: Iterable[_Rule], document: Document) -> tuple[Diagnostic, ...]:
    """Raises Unresolvable or RecursionError for what no document can be held against."""
    spec, related = policy.model.spec, (("the policy is here", policy.document.name),)
    params = {"message": spec.message, "policy": policy.model.metadata.name}
    paths = dict.fromkeys(path for rule in rules for path in _broken(rule, document.data))
    found = (document.diagnostic("GPU4001", document.key_span(path), params) for path in paths)
    return tuple(replace(one, severity=Severity(spec.severity), related=related) for one in found)


def _matching(match: Match, declarations: Declarations) -> Iterator[Document]:
    """The declarations a policy is about."""
    kinds: Mapping[str, list[Any]] = {
        "Cluster": declarations.clusters,
        "Department": declarations.departments,
        "Project": declarations.projects,
        "Job": declarations.jobs,
    }
    chosen: dict[str, bool] = {}
    for declaration in kinds[match.kind]:
        metadata = declaration.model.metadata
        project = metadata.project if match.kind == "Job" else metadata.name if match.kind == "Project" else ""
        if project not in chosen:
            chosen[project] = _any(match.projects, project) and not _any(match.except_, project)
        if chosen[project]:
            yield declaration.document


def _any(patterns: list[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _schema_mistakes(document: Document, schema: Mapping[str, Any]) -> Iterator[Diagnostic]:
    draft = Draft202012Validator
    checker = draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER)
    for error in checker.iter_errors(schema):
        path = (*_SCHEMA, *error.absolute_path)
        yield document.diagnostic("GPU4002", document.span(path), {"problem": error.message})


def _rules(path: Path, schema: Any) -> Iterator[_Rule]:
    """A schema that only says something of certain properties, as a rule for each of them: most documents have few.

    One with references is left whole, because these are resolved from its root.
    """
    if set(schema) == {"properties"} and not _refers(schema):
        for name, below in schema["properties"].items():
            schemas = {True: {}, False: _NOTHING}
            yield from _rules((*path, name), below if isinstance(below, dict) else schemas[below])
    else:
        yield _Rule(path, Draft202012Validator(schema, registry=Registry()))


def _refers(schema: Any) -> bool:
    if isinstance(schema, dict):
        return any(key in {"$ref", "$dynamicRef"} or _refers(value) for key, value in schema.items())
    return isinstance(schema, list) and any(_refers(entry) for entry in schema)


def _broken(rule: _Rule, data: Any) -> Iterator[Path]:
    """Where a declaration breaks a rule."""
    for step in rule.path:
        if not isinstance(data, dict) or step not in data:
            return
        data = data[step]
    for error in rule.validator.iter_errors(data):
        for path in _causes(error):
            yield (*rule.path, *path)


def _causes(error: ValidationError) -> Iterator[Path]:
    """The nodes that cause a mistake: as deep as the schema says."""
    path = tuple(error.absolute_path)
    if error.context:
        deepest = max(error.context, key=lambda below: (len(below.absolute_path), -int(below.schema_path[0])))
        yield from _causes(deepest)
    elif error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        yield from ((*path, name) for name in error.instance if name not in known)
    elif error.validator == "not":
        yield (*path, *_refused(error.validator_value, error.instance))
    else:
        yield path


def _refused(schema: Any, instance: Any) -> Path:
    """Down to the one property that a `not` is about, where it is about one."""
    if not isinstance(schema, dict) or not isinstance(instance, dict):
        return ()
    named = [*schema.get("required", ()), *schema.get("properties", {})]
    present = [name for name in dict.fromkeys(named) if name in instance]
    if len(present) != 1:
        return ()
    below = schema.get("properties", {}).get(present[0])
    return (present[0], *_refused(below, instance[present[0]]))
