"""Policies as admission policies: the API server checks what it is asked to create against the repository's rules.

A rule is about a declaration. Variables of the admission policy rebuild the parts of it that are in a pod or a
workload, one declaration for each container. The expression is then the policy's own, word for word, or the translation
of its JSON Schema. A rule that reads anything else can't be checked on objects: it is listed with the reason.

gpuctl's own objects were checked when they were compiled, so for them this is a second check; for objects of people
with rights in a project's namespace it is the only one. An update is judged if a user other than gpuctl and Kubernetes'
controllers changes what pods are: a job that breaks a newer rule can still be paused and deleted.
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
"""The volumes of a container, an entry for each of its mounts; and volumes that it does not mount."""
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
"""Fields of a job that its pods show as declared. Other fields are decided later (workers), or not shown at all."""
_OF_THE_CLUSTER = f"request.userInfo.username == '{ACCOUNT}' && c.name == '{names.GIT_CONTAINER}'"
"""gpuctl's addition to a job comes from the Cluster, not from a declaration. A person's container of that name is
judged."""
_WORKLOADS = (
    ("", "v1", ("pods", "pods/ephemeralcontainers", "replicationcontrollers")),
    ("batch", "v1", ("jobs", "cronjobs")),
    ("apps", "v1", ("deployments", "replicasets", "statefulsets", "daemonsets")),
)


@dataclass(frozen=True, slots=True)
class GitAlone:
    """A policy that can't be checked on objects, and why."""

    policy: str
    why: str


def admission_rules(
    policies: Iterable[Declaration[PolicyV1]], owners: Mapping[str, str | None], makers: Sequence[str]
) -> Iterator[Body | GitAlone]:
    """An admission policy and its binding for each policy, in order of names; or the reason why there is none.

    `owners`: the project in whose folder a file is, by the file's path. A project's own policy gets no admission
    policy: only administrators write objects of the cluster. `makers`: the users whose pods were judged as templates
    (`makers_of`).
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
    """The expression of a policy, or why it can't be checked on objects."""
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
    """Why an expression about jobs can't be checked on objects; "" if it can."""
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
    """Excludes pods that controllers create: their templates were judged, and other users may have added to the pods
    since.

    Also excludes updates by gpuctl and controllers, and updates that do not change the pods.
    """
    listed = ", ".join(f"'{maker}'" for maker in makers)
    by_makers = f"request.userInfo.username in [{listed}]"
    made = f"request.resource.resource != 'pods' || !({by_makers})"
    changed = f"!({by_makers}) && ({_pods_of('object')}) != ({_pods_of('oldObject')})"
    return {"name": "made-or-changed", "expression": f"request.operation == 'CREATE' ? ({made}) : ({changed})"}


def _pods_of(source: str) -> str:
    """The expression for the pod spec in an object."""
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
    """A character, quoted for a regular expression in a CEL text."""
    return character if character.isalnum() or character in "-_" else f"\\\\x{{{ord(character):x}}}"


def _variables(match: Match) -> Iterator[tuple[str, str]]:
    """The variables: whether the policy is for the project; the declarations, one for each container; and their
    parts."""
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
