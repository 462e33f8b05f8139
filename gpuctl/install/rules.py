"""Policies as admission policies: the API server holds what it is asked to make against the rules of the repository.

A rule is about a declaration. What of that stands in a pod or a workload is put together again, by variables of the
admission policy, one declaration a container; the expression is then the policy's own, word for word, or says what its
JSON Schema does. A rule that reads anything else can't be said about objects: it is named with the reason.

What gpuctl makes was checked when it was compiled, so for it this is a second lock; for what people with rights in a
project's namespace make, it is the only one. An update is judged where others than gpuctl and Kubernetes' controllers
change what pods are: a job that breaks a newer rule can still be paused, and deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.compile.cel_rule import CelRule, cel_rule
from gpuctl.compile.cel_tree import Constant, Made, all_of_tree
from gpuctl.compile.declarations import Declaration
from gpuctl.compile.policy_v1 import Match
from gpuctl.compile.spec_v1 import PolicyV1
from gpuctl.install.installation import ACCOUNT, made
from gpuctl.install.matching import in_projects, rule
from gpuctl.install.schema_rule import NO_FIELD, TOO_LARGE, Unsaid, schema_cel
from gpuctl.k8s import kinds, names
from gpuctl.model.state import Body

_ACTIONS = {"error": "Deny", "warning": "Warn", "audit": "Audit"}
_MOUNTS = "c.?volumeMounts.orValue([])"
_MOUNTED = (
    f"{_MOUNTS}.filter(m, !(m.name in variables.added)).map(m, {{'mountPath': m.mountPath, "
    "?'hostPath': variables.pod.volumes.filter(v, v.name == m.name)[?0].?hostPath.?path})"
)
_UNMOUNTED = (
    "variables.pod.?volumes.orValue([])"
    f".filter(v, !(v.name in variables.added) && !{_MOUNTS}.exists(m, m.name == v.name))"
    ".map(v, {'mountPath': dyn(''), ?'hostPath': v.?hostPath.?path})"
)
_VOLUMES = f"{_MOUNTED} + {_UNMOUNTED}"
"""The volumes of a container, an entry for each place where it sees one; those that another container mounts, too."""
_ENTRIES = {"command": "c.?command.orValue([])", "args": "c.?args.orValue([])", "volumes": _VOLUMES}
_FIELDS = {
    "image": "c.image",
    "imagePullPolicy": "c.imagePullPolicy",
    "type": f"variables.labels[?'{names.TYPE_LABEL}'].orValue('')",
}
SHOWN = frozenset({
    ("metadata", "name"), ("metadata", "project"), ("spec", "workingDir"), ("spec", "volumes", "*", "hostPath"),
    ("spec", "volumes", "*", "mountPath"),
    *(("spec", name) for name in (*_ENTRIES, *_FIELDS)), *(("spec", name, "*") for name in _ENTRIES),
})  # fmt: skip
"""Fields of a job that its pods show as they are declared. Others are decided later (workers), or shown nowhere."""
_OF_THE_CLUSTER = f"request.userInfo.username == '{ACCOUNT}' && c.name == '{names.GIT_CONTAINER}'"
"""What gpuctl adds to a job is the Cluster's, and no declaration says it: the same name in a person's pod is judged."""
_WORKLOADS = (
    ("", "v1", ("pods", "pods/ephemeralcontainers", "replicationcontrollers")),
    ("batch", "v1", ("jobs", "cronjobs")),
    ("apps", "v1", ("deployments", "replicasets", "statefulsets", "daemonsets")),
)


@dataclass(frozen=True, slots=True)
class GitAlone:
    """A policy that can't be said about objects, and why."""

    policy: str
    why: str


def admission_rules(
    policies: Iterable[Declaration[PolicyV1]], owners: Mapping[str, str | None], makers: Sequence[str]
) -> Iterator[Body | GitAlone]:
    """An admission policy and its binding for each policy, in order of names; or why there is none.

    `owners`: the project in whose folder a file is, by the file's path. A project's own policy gets none: an object of
    the cluster is the administrators' to write. `makers`: the users whose pods were judged as templates (`makers_of`).
    """
    for policy in sorted(policies, key=lambda policy: policy.model.metadata.name):
        name, spec = policy.model.metadata.name, policy.model.spec
        owner = owners.get(policy.document.name.file)
        cel = Unsaid(f'it is project "{owner}"\'s own') if owner else _said(policy)
        if isinstance(cel, Unsaid):
            yield GitAlone(name, cel.why)
            continue
        named = f"gpuctl-rule-{name}"
        binding = {"policyName": named, "validationActions": [_ACTIONS[spec.severity]]}
        yield made(kinds.ADMISSION_POLICY, named, {"spec": _spec(policy, cel, makers)})
        yield made(kinds.ADMISSION_POLICY_BINDING, named, {"spec": binding})


def _said(policy: Declaration[PolicyV1]) -> str | Unsaid:
    """The expression of a policy, or why it can't be said about objects."""
    spec = policy.model.spec
    if spec.match.kind != "Job":
        return Unsaid(f"it is about a {spec.match.kind}, {NO_FIELD}")
    if any("[" in pattern for pattern in (*spec.match.projects, *spec.match.except_)):
        return Unsaid("its match has a pattern with [ ]")
    cel = schema_cel(spec.schema_ or {}, SHOWN) if spec.cel is None else spec.cel
    if isinstance(cel, Unsaid):
        return cel
    rule = cel_rule(cel, spec.match.kind)
    if not isinstance(rule, CelRule):
        return Unsaid(TOO_LARGE if spec.cel is None else "its expression is wrong: gpuctl validate")
    why = _why_not(rule)
    return Unsaid(why) if why else cel


def _why_not(rule: CelRule) -> str:
    """Why an expression about jobs can't be said about objects; "" if it can."""
    for path in rule.paths:
        if path[0] in {"old", "oldTotal"}:
            return f"it reads {'.'.join(path)}: it is about a change in Git"
        if path[0] != "object" or path[1:] not in SHOWN:
            return f"it reads {'.'.join(path)}, {NO_FIELD}"
    for node in all_of_tree(rule.tree):
        if isinstance(node, Made) and len({type(part.value) for part in node.parts if isinstance(part, Constant)}) > 1:
            return "it has a list or mapping of several types, which the API server refuses"
    return ""


def _spec(policy: Declaration[PolicyV1], cel: str, makers: Sequence[str]) -> Mapping[str, Any]:
    spec = policy.model.spec
    workloads = (rule(group, version, plurals, ("CREATE", "UPDATE")) for group, version, plurals in _WORKLOADS)
    return {
        "failurePolicy": "Fail",
        "matchConstraints": in_projects(*workloads),
        "matchConditions": [_condition(makers)],
        "variables": [{"name": name, "expression": expression} for name, expression in _variables(spec.match)],
        "validations": [
            {
                "expression": f"!variables.bound || variables.declared.all(object, {cel}\n)",
                "message": f'{" ".join(spec.message.split())} (policy "{policy.model.metadata.name}")',
                "reason": "Forbidden",
            }
        ],
    }


def _condition(makers: Sequence[str]) -> Mapping[str, str]:
    """Not the pods that controllers make: their templates were judged, and others may have added to the pods since.

    No updates by gpuctl and controllers either, and none that leaves the pods as they are.
    """
    listed = ", ".join(f"'{maker}'" for maker in makers)
    by_makers = f"request.userInfo.username in [{listed}]"
    made = f"request.resource.resource != 'pods' || !({by_makers})"
    changed = f"!({by_makers}) && ({_pods_of('object')}) != ({_pods_of('oldObject')})"
    return {"name": "made-or-changed", "expression": f"request.operation == 'CREATE' ? ({made}) : ({changed})"}


def _pods_of(source: str) -> str:
    """What an object says of its pods, or of itself."""
    return " : ".join((
        f"request.resource.resource == 'pods' ? dyn({source}).spec",
        f"request.resource.resource == 'cronjobs' ? dyn({source}).spec.jobTemplate.spec.template.spec",
        f"dyn({source}).spec.template.spec",
    ))


def _matches(value: str, globs: Iterable[str]) -> str:
    """Whether a value matches one of some patterns with `*` and `?`."""
    patterns = ["".join({"*": ".*", "?": "."}.get(c, _quoted(c)) for c in glob) for glob in globs]
    return " || ".join(f"{value}.matches('^({pattern})$')" for pattern in patterns) or "false"


def _quoted(character: str) -> str:
    """A character in a regular expression in a text of CEL."""
    return character if character.isalnum() or character in "-_" else f"\\\\x{{{ord(character):x}}}"


def _variables(match: Match) -> Iterator[tuple[str, str]]:
    """Whether the project is one of the policy's; and the declarations, one a container, and what they are made of."""
    yield "project", f"namespaceObject.metadata.?labels[?'{names.PROJECT_LABEL}'].orValue('')"
    chosen, excepted = (_matches("variables.project", globs) for globs in (match.projects, match.except_))
    yield "bound", f"({chosen}) && !({excepted})"
    yield "labels", "dyn(object).metadata.?labels.orValue({})"
    yield "pod", _pods_of("object")
    lists = ("initContainers", "containers", "ephemeralContainers")
    every = " + ".join(f"variables.pod.?{each}.orValue([])" for each in lists)
    yield "containers", f"({every}).filter(c, !({_OF_THE_CLUSTER}))"
    own = "v.name in ['shm', 'git'] && has(v.emptyDir)"
    yield "added", f"variables.pod.?volumes.orValue([]).filter(v, {own}).map(v, v.name)"
    metadata = {"name": names.JOB_LABEL, "project": names.PROJECT_LABEL}
    about = ", ".join(f"'{field}': variables.labels[?'{label}'].orValue('')" for field, label in metadata.items())
    fields = ", ".join(f"'{field}': dyn({source})" for field, source in {**_FIELDS, **_ENTRIES}.items())
    spec = f"{{{fields}, ?'workingDir': c.?workingDir}}"
    yield "declared", f"variables.containers.map(c, {{'metadata': dyn({{{about}}}), 'spec': dyn({spec})}})"
