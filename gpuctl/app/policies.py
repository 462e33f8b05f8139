"""`policy list` and `policy test`: which declarations policies match and which break them, and how policies judge their
examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from posixpath import basename, dirname, join

from gpuctl.compile.declarations import (
    EXAMPLES,
    Declaration,
    Declarations,
    ReadCache,
    collect,
    collect_files,
    is_example,
)
from gpuctl.compile.policy import check_policies, matches
from gpuctl.compile.spec_v1 import PolicyV1
from gpuctl.compile.text import Params
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, has_errors, sorted_diagnostics
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.memo import Memo
from gpuctl.model.source import SourceTree

_BEFORE = ".before.yaml"


class Verdict(StrEnum):
    """The verdict in the name of an example's file: whether the policy should allow it."""

    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCount:
    """A policy, how many declarations it matches, and how many of them break it; None for a rule about changes."""

    name: str
    kind: str
    severity: str
    file: str
    matches: int
    breaches: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTest:
    """A policy, its examples by verdict, and a diagnostic for each failure."""

    name: str
    file: str
    examples: tuple[tuple[Verdict, int], ...]
    diagnostics: tuple[Diagnostic, ...]


def count_policies(tree: SourceTree) -> tuple[tuple[PolicyCount, ...], tuple[Diagnostic, ...]]:
    """Every policy of a cluster, by name, and the diagnostics about the policies themselves."""
    declarations = collect(tree, ReadCache())
    found = list(check_policies(declarations, Memo(), Memo()))
    broken = Counter(each.policy for each in found if each.policy)
    counts = [
        PolicyCount(
            name=policy.model.metadata.name,
            kind=policy.model.spec.match.kind,
            severity=policy.model.spec.severity,
            file=policy.document.name.file,
            matches=count,
            breaches=None if _is_about_a_change(policy) else broken[policy.model.metadata.name],
        )
        for policy, count in matches(declarations)
    ]
    wrong = sorted_diagnostics(each for each in (*declarations.diagnostics, *found) if not each.policy)
    return tuple(sorted(counts, key=lambda each: each.name)), wrong


def _is_about_a_change(policy: Declaration[PolicyV1]) -> bool:
    from gpuctl.compile.cel_rule import CelRule, cel_rule  # noqa: PLC0415 - the library is large

    spec = policy.model.spec
    rule = cel_rule(spec.cel, spec.match.kind) if spec.cel is not None else None
    return isinstance(rule, CelRule) and rule.of_a_change


def check_examples(tree: SourceTree) -> tuple[tuple[PolicyTest, ...], tuple[Diagnostic, ...]]:
    """Test each policy of a tree against its examples: `examples/NAME/good-*.yaml` and `bad-*.yaml` beside its file.

    An example is one or more declarations; `good-1.before.yaml` has them as before a change. Diagnostics about
    unreadable files of the tree are returned too: a policy may be in one.
    """
    declarations = collect(tree, ReadCache())
    return tuple(_tests(tree, declarations)), sorted_diagnostics(declarations.diagnostics)


def _tests(tree: SourceTree, declarations: Declarations) -> Iterator[PolicyTest]:
    for policy in declarations.policies:
        name, file = policy.model.metadata.name, policy.document.name.file
        folder = join(dirname(file), EXAMPLES, name)
        paths = [path for path in sorted(tree.files) if dirname(path) == folder and is_example(path)]
        found: list[Diagnostic] = []
        counts: Counter[Verdict] = Counter()
        for path in paths:
            verdict = next((each for each in Verdict if basename(path).startswith(f"{each.value}-")), None)
            if verdict is None:
                found.append(_told("GPU4011", path, {"policy": name}))
            elif not path.endswith(_BEFORE):
                counts[verdict] += 1
                found.extend(_judged(tree, policy, path, verdict))
        missing = [each for each in Verdict if not counts[each]]
        if missing:
            told = policy.document.diagnostic(
                "GPU4012", policy.document.name, {"what": missing[0].value, "folder": folder}
            )
            found.append(told)
        yield PolicyTest(
            name=name,
            file=file,
            examples=tuple((each, counts[each]) for each in Verdict if counts[each]),
            diagnostics=sorted_diagnostics(found),
        )


def _judged(tree: SourceTree, policy: Declaration[PolicyV1], path: str, verdict: Verdict) -> Iterator[Diagnostic]:
    """What is wrong with an example, or with the policy's verdict on it."""
    before = path.removesuffix(".yaml") + _BEFORE
    declarations = _declared(tree, policy, path)
    base = _declared(tree, policy, before) if before in tree.files else None
    mistakes = [*declarations.diagnostics, *(base.diagnostics if base is not None else ())]
    found = list(check_policies(declarations, Memo(), Memo(), base=base or _nothing(policy)))
    failed = [each for each in found if each.code != "GPU4001"]
    breaches = [each for each in found if each.code == "GPU4001"]
    if has_errors(mistakes) or failed:
        yield from (*mistakes, *failed)
    elif (verdict is Verdict.BAD) is not bool(breaches):
        name = policy.model.metadata.name
        what = "breaks it" if breaches else "does not break it"
        told = _told("GPU4010", path, {"policy": name, "verdict": verdict.value, "what": what})
        places = tuple((each.message, each.span) for each in breaches[:3])
        yield replace(told, related=(*places, ("the policy is here", policy.document.name)))


def _declared(tree: SourceTree, policy: Declaration[PolicyV1], path: str) -> Declarations:
    """One example's declarations, with the policy alone."""
    found = collect_files(tree, [path], ReadCache())
    found.policies = [policy]
    found.owners[policy.document.name.file] = None
    return found


def _nothing(policy: Declaration[PolicyV1]) -> Declarations:
    return Declarations(policies=[policy])


def _told(code: str, path: str, params: Params) -> Diagnostic:
    return Diagnostic(
        code=code, message=message(code, params), span=SourceSpan(file=path, line=1, column=1), help=CODES[code].fix
    )
