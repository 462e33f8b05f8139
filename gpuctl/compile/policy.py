"""Policies: rules over declarations as they are written. Each breach is reported at the YAML node that causes it.

A policy below `projects/<p>/` binds only that project; any other binds all. The cost of policies is counted in steps
and bounded three times: for a policy on one declaration, for the declarations of a project, and for a policy in all.
The mistake is reported where it can be changed: only a project whose declarations or own policies take too many steps
stays at its last good commit.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuctl.compile.cel_scope import Scope, name_of
from gpuctl.compile.container_views import other_containers
from gpuctl.compile.declarations import Declaration, Declarations
from gpuctl.compile.document import Document, Path
from gpuctl.compile.policy_v1 import Match
from gpuctl.compile.rule_causes import Cause
from gpuctl.compile.rule_form import STEPS, Flaw, TooMuch, check_form
from gpuctl.compile.rule_steps import Rule
from gpuctl.compile.spec_v1 import JobV1, PolicyV1
from gpuctl.compile.text import Params
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.model.memo import Memo

if TYPE_CHECKING:
    from gpuctl.compile.cel_rule import CelFlaw, CelRule

_SCHEMA: Path = ("spec", "schema")
_CEL: Path = ("spec", "cel")
_STEPS_A_CHARACTER = 3
"""The steps that reading an expression takes, a character. The project's account is charged before it is read."""
_PROJECTS: Path = ("spec", "match", "projects")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds on what policies may take, in steps.

    `project`: for all policies on the declarations of one project; `policy`: for one that binds all projects, on
    everything. Each bound grows by `declaration` for every declaration. A policy that binds all projects is charged on
    a declaration only for the steps beyond `free`.
    """

    project: int = 200_000
    policy: int = 1_000_000
    declaration: int = 100
    free: int = 50


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a declaration breaks a policy, and the steps of the evaluation. More than STEPS: the evaluation was given
    up."""

    breaches: tuple[Diagnostic, ...] = ()
    steps: int = 0


Bound: TypeAlias = tuple[str, Declaration[Any]]
"""The project that a declaration belongs to ("" for none), and the declaration."""
Subject: TypeAlias = tuple[str, Declaration[Any], bool]
"""As Bound, and whether the declaration is in a file that belongs to the project."""
Breaches: TypeAlias = Memo[tuple[Declaration[Any], Declaration[Any]], Outcome]
"""Memo of how declarations break policies."""
Rules: TypeAlias = Memo[Declaration[Any], "Rule | CelRule | list[Flaw] | list[CelFlaw] | None"]
"""Memo of the rules of policies, or of their flaws; None: the rule takes too many steps to read."""


def check_policies(
    declarations: Declarations,
    rules: Rules,
    breaches: Breaches,
    limits: Limits = LIMITS,
    base: Declarations | None = None,
) -> Iterator[Diagnostic]:
    """The mistakes in policies, and the declarations that break them.

    `base`: what was declared before a change. Without it, policies that compare with it are not evaluated.
    Cost: the pairs of a policy and a matching declaration of which one or the other is new; and the steps.
    """
    rules.turn()
    breaches.turn()
    scope = Scope(declarations, base)
    subjects = _subjects(declarations)
    accounts = _Accounts(subjects, limits)
    owner_of = {policy: declarations.owners.get(policy.document.name.file) or "" for policy in declarations.policies}
    for policy in sorted(declarations.policies, key=lambda policy: bool(owner_of[policy])):
        spec, owner = policy.model.spec, owner_of[policy]
        if owner:
            yield from _beyond(policy, owner)
        read = len(spec.cel or "") * _STEPS_A_CHARACTER
        if read and (owner in accounts.closed or not accounts.take(owner, read)):
            if owner not in accounts.closed:
                whose = f'project "{owner}"' if owner else "the cluster"
                yield _too_much(
                    policy, _rule_span(policy), accounts.most(owner), f"{whose}, with the policies before it"
                )
            accounts.closed.add(owner)
            continue
        rule = rules.get(policy, (), partial(_rule, policy))
        if rule is None:
            yield _too_much(policy, _rule_span(policy), STEPS, "its own schema")
        elif isinstance(rule, list):
            yield from (_flaw(policy, flaw) for flaw in rule)
        elif scope.base is not None or isinstance(rule, Rule) or not rule.of_a_change:
            bound = _bound(spec.match, owner, subjects[spec.match.kind])
            yield from _check(_Check(policy, owner, rule, scope), bound, accounts, breaches)


def matches(declarations: Declarations) -> Iterator[tuple[Declaration[PolicyV1], int]]:
    """Each policy, and the number of declarations that it binds."""
    subjects = _subjects(declarations)
    for policy in declarations.policies:
        owner = declarations.owners.get(policy.document.name.file) or ""
        match = policy.model.spec.match
        yield policy, sum(1 for _ in _bound(match, owner, subjects[match.kind]))


def _subjects(declarations: Declarations) -> Mapping[str, list[Subject]]:
    """The declarations by kind, without those in the files of a project that they do not belong to."""
    found: dict[str, list[Subject]] = {}
    for kind, declared in declarations.of_kinds().items():
        found[kind] = []
        for declaration in declared:
            project = name_of(kind, declaration)[1]
            file_owner = declarations.owners.get(declaration.document.name.file)
            if file_owner in {None, project}:
                found[kind].append((project, declaration, file_owner is not None))
    return found


def _bound(match: Match, owner: str, subjects: list[Subject]) -> Iterator[Bound]:
    """The declarations that a policy binds. `owner`: the project that the policy belongs to, "" for none.

    A project's policy does not bind what the cluster's own files declare for the project: the project can't change it.
    """
    chosen: dict[str, bool] = {}
    for project, declaration, is_in_its_files in subjects:
        if owner and (project != owner or not is_in_its_files):
            continue
        if project not in chosen:
            chosen[project] = _any(match.projects, project) and not _any(match.except_, project)
        if chosen[project]:
            yield project, declaration


def _any(patterns: list[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _beyond(policy: Declaration[PolicyV1], owner: str) -> Iterator[Diagnostic]:
    """Parts of a project's own policy that name other projects or kinds: it binds that project alone."""
    document, match = policy.document, policy.model.spec.match
    if match.kind not in {"Project", "Job"}:
        params = {"folder": owner, "what": f"a {match.kind}, which is the cluster's"}
        yield document.diagnostic("GPU4006", document.span(("spec", "match", "kind")), params)
    for position, pattern in enumerate(match.projects if "projects" in match.model_fields_set else ()):
        if pattern != owner:
            params = {"folder": owner, "what": f'projects "{pattern}"'}
            yield document.diagnostic("GPU4006", document.span((*_PROJECTS, position)), params)


def _rule(policy: Declaration[PolicyV1]) -> Rule | CelRule | list[Flaw] | list[CelFlaw] | None:
    spec = policy.model.spec
    if spec.cel is not None:
        from gpuctl.compile.cel_rule import cel_rule  # noqa: PLC0415 - the library is large; most trees need none

        return cel_rule(spec.cel, spec.match.kind)
    try:
        form = check_form(spec.schema_ or {})
    except TooMuch:
        return None
    return form if isinstance(form, list) else Rule(form)


def _flaw(policy: Declaration[PolicyV1], flaw: Flaw | CelFlaw) -> Diagnostic:
    document, cel = policy.document, policy.model.spec.cel
    if not isinstance(flaw, Flaw):
        span = document.text_span(_CEL, cel or "", flaw.start, flaw.end)
        return document.diagnostic("GPU4007", span, {"problem": flaw.problem}, flaw.fix)
    is_key = not flaw.path or flaw.path[-2:-1] == ("patternProperties",)
    path = (*_SCHEMA, *flaw.path)
    span = document.key_span(path) if is_key else document.span(path)
    return document.diagnostic(flaw.code, span, {"problem": flaw.problem}, flaw.fix)


def _rule_span(policy: Declaration[PolicyV1]) -> SourceSpan:
    return policy.document.key_span(_SCHEMA if policy.model.spec.cel is None else _CEL)


class _Accounts:
    """The steps used by the declarations of each project ("" for the cluster's own)."""

    def __init__(self, subjects: Mapping[str, list[Subject]], limits: Limits) -> None:
        self.limits = limits
        self.closed: set[str] = set()
        self._counts = Counter(project for declared in subjects.values() for project, *_ in declared)
        self._used: Counter[str] = Counter()

    def most(self, project: str) -> int:
        """The steps that the declarations of a project may take in all."""
        whole = self.limits.project if project else self.limits.policy
        return whole + self._counts[project] * self.limits.declaration

    def most_of_all(self) -> int:
        """The steps that one policy may take on all declarations."""
        return self.limits.policy + self._counts.total() * self.limits.declaration

    def take(self, project: str, steps: int) -> bool:
        """Take steps; False if fewer are left."""
        self._used[project] += steps
        return self._used[project] <= self.most(project)


@dataclass(frozen=True, slots=True)
class _Check:
    """A policy, the project it belongs to ("" for none), its rule, and the scope that it reads."""

    policy: Declaration[PolicyV1]
    owner: str
    rule: Rule | CelRule
    scope: Scope

    def inputs(self, declaration: Declaration[Any]) -> tuple[object, ...]:
        """All inputs of the outcome besides the policy and the declaration."""
        if isinstance(self.rule, Rule):
            return ()
        return self.scope.inputs(name_of(self.policy.model.spec.match.kind, declaration), self.rule.reads)


def _check(check: _Check, bound: Iterator[Bound], accounts: _Accounts, breaches: Breaches) -> Iterator[Diagnostic]:
    """Check declarations against a policy. Once a declaration takes too many steps, its project is not checked
    further."""
    policy, counted = check.policy, 0
    for project, declaration in bound:
        if project in accounts.closed:
            continue
        document = declaration.document
        outcome = partial(_outcome, check, declaration)
        found = breaches.get((policy, declaration), check.inputs(declaration), outcome)
        yield from found.breaches
        steps = 1 + (found.steps if check.owner else max(0, found.steps - accounts.limits.free))
        counted += steps
        is_within = accounts.take(project, steps)
        if found.steps > STEPS:
            yield _at_fault(check, document, STEPS, "one declaration")
        elif not is_within:
            whose = f'project "{project}"' if project else "the cluster"
            yield _at_fault(check, document, accounts.most(project), f"{whose}, with the policies before it")
        if found.steps > STEPS or not is_within:
            accounts.closed.add(project)
        if not check.owner and counted > accounts.most_of_all():
            yield _too_much(policy, _rule_span(policy), accounts.most_of_all(), "all declarations")
            return


def _outcome(check: _Check, declaration: Declaration[Any]) -> Outcome:
    """Check one declaration against a policy; a job of several containers with each of them.

    A policy that compares with what was declared before sees only the job: another container was not there before, or
    was a different one.
    """
    is_of_a_change = not isinstance(check.rule, Rule) and check.rule.of_a_change
    if not isinstance(declaration.model, JobV1) or is_of_a_change:
        return _outcome_of(check, declaration)
    found = Outcome() if declaration.model.spec.manifest is not None else _outcome_of(check, declaration)
    breaches, steps = dict.fromkeys(found.breaches), found.steps
    for view in other_containers(declaration, check.scope.rows):
        if steps > STEPS:
            break
        one = _outcome_of(check, view)
        breaches |= dict.fromkeys(one.breaches)
        steps += one.steps
    return Outcome(tuple(breaches), steps)


def _outcome_of(check: _Check, declaration: Declaration[Any]) -> Outcome:
    document, spec, name = declaration.document, check.policy.model.spec, check.policy.model.metadata.name
    causes: Iterable[Cause]
    try:
        if isinstance(check.rule, Rule):
            causes, steps = check.rule.broken(document.data)
            failure = ""
        else:
            named = name_of(spec.match.kind, declaration)
            values = check.scope.values(named, declaration, check.rule.reads)
            field = None if spec.field is None else tuple(spec.field.split("."))
            found = check.rule.held_against(spec.match.kind, values, field)
            causes, steps, failure = found.causes, found.steps, found.failure
    except TooMuch:
        return Outcome(steps=STEPS + 1)
    code = "GPU4008" if failure else "GPU4001"
    params: Params = {"message": spec.message, "policy": name, "problem": failure}
    told = (document.mistake(code, one.path, {**params, "why": one.why}, at_key=True) for one in causes)
    severity, here = Severity(spec.severity), ("the policy is here", check.policy.document.name)
    return Outcome(
        tuple(replace(one, severity=severity, related=(*one.related, here), policy=name) for one in told), steps
    )


def _at_fault(check: _Check, document: Document, limit: int, what: str) -> Diagnostic:
    """The diagnostic of a policy that takes too many steps: at the policy if a project owns it, else at the
    declaration."""
    if check.owner:
        found = _too_much(check.policy, _rule_span(check.policy), limit, what)
        return replace(found, related=(("for example on this", document.name),))
    related = (("the policy is here", check.policy.document.name),)
    return replace(_too_much(check.policy, document.name, limit, what, document), related=related)


def _too_much(
    policy: Declaration[PolicyV1], at: SourceSpan, limit: int, what: str, document: Document | None = None
) -> Diagnostic:
    params: Params = {"policy": policy.model.metadata.name, "limit": limit, "what": what}
    return (document or policy.document).diagnostic("GPU4005", at, params)
