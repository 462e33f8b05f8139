"""Admission policies that keep the controller in its namespaces, and people from taking GPUs past it.

The API server evaluates them itself, whether gpuctl is up or not. They apply to administrators too, except for
annotations that schedulers and agents of GPUs write. Security: a user who may delete or change the policies, or start
pods in namespaces that are not a project's, can get round them: these users are the cluster's owners.

Kubernetes' controllers create the pods of a Job or a ReplicaSet. So gpuctl's labels on a pod prove something only
because no other user may write those labels on anything that makes pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.install.ends import ends
from gpuctl.install.installation import ACCOUNT, ENGINE_ACCOUNTS, USUAL, Duties, Installation, made
from gpuctl.install.matching import (
    MAY_PATCH_NODES,
    by_others,
    cel_list,
    everywhere,
    in_projects,
    rule,
    validation,
    variable,
)
from gpuctl.install.pods import hides_gpus_before, is_gpu_note, reaches_gpu_nodes, ways
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import group_of
from gpuctl.model.state import Body

ONE_FOR_ALL = "system:kube-controller-manager"
"""The user of Kubernetes' controllers if they share one account."""
CONTROLLERS = (
    "system:serviceaccount:kube-system:deployment-controller",
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:kube-system:resource-claim-controller",
    "system:serviceaccount:kube-system:statefulset-controller",
)
AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
"""The user that scales Deployments by autoscalers, which any user may create, if controllers have an account each."""
MAKERS = (ACCOUNT, ONE_FOR_ALL, *CONTROLLERS)
"""The users that make objects with gpuctl's labels: gpuctl, and Kubernetes' controllers from gpuctl's objects."""

_MARK = "gpuctl.dev/"
_OF_PODS = (names.IDLE_SINCE_ANNOTATION, names.PROGRESS_ANNOTATION, names.CHECKPOINTED_ANNOTATION)
_IS_MARK = " && ".join((f"k.startsWith('{_MARK}')", *(f"k != '{name}'" for name in _OF_PODS)))
"""Whether a key is a mark of gpuctl. Keys for measurements of others, and for what a pod reports, are not."""
_PLACES = tuple(
    f"{place}.?{field}"
    for place in (
        "metadata",
        "?spec.?metadata",
        "?spec.?template.?metadata",
        "?spec.?jobTemplate.?metadata",
        "?spec.?jobTemplate.?spec.?template.?metadata",
    )
    for field in ("labels", "annotations")
)
"""Where marks may be: on the object, on the claims, pods or Jobs it makes, and on the pods of those Jobs."""
_OWN_PODS = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""Labels by which the Job controller knows its pods: it adopts a pod without an owner that has them."""
_OF_RAY = "ray.io/cluster"
_OF_RUNS = "matches('-[0-9a-f]{8}(-[a-z0-9]+)?$')"
"""Whether a name has the form of a run's objects, and of what controllers make of them."""
_ALSO_MADE = {
    "kubeflow.org": ("jaxjobs", "mxjobs", "paddlejobs", "tfjobs", "xgboostjobs"),
    "ray.io": ("raycronjobs", "rayservices"),
}
"""Other kinds of which the built-in kinds' controllers make pods: no job's manifest is one unless it is declared."""
_WRITES = ("CREATE", "UPDATE")


def makers_of(wanted: Installation, duties: Duties) -> tuple[str, ...]:
    """The users that create or change objects with gpuctl's labels in this cluster."""
    engine = ENGINE_ACCOUNTS.get(duties.engine)
    return (*MAKERS, *([engine] if engine else []), *wanted.controllers)


def policies(wanted: Installation, duties: Duties = USUAL) -> Iterator[Body]:
    """The policies and their bindings."""
    found = []
    if wanted.namespace_prefix:
        found.append(_fence(wanted.namespace_prefix, duties.engine))
    if wanted.guard:
        makers = makers_of(wanted, duties)
        found += [_gpu_pods(makers), _pod_updates(makers), _marks(makers), _own_objects(makers, duties)]
        found += [_owners(makers, duties)]
        found += [_scale(makers, duties), _autoscalers(makers), _other_workloads(makers, duties), ends(makers, duties)]
        found.append(_services(makers))
    for name, spec in found:
        yield made(kinds.ADMISSION_POLICY, name, {"spec": {"failurePolicy": "Fail", **spec}})
        yield made(kinds.ADMISSION_POLICY_BINDING, name, {"spec": {"policyName": name, "validationActions": ["Deny"]}})


def _fence(prefix: str, engine: str) -> tuple[str, Mapping[str, Any]]:
    """Bounds the controller to its own namespaces: since namespaces come and go, its rights are for the whole
    cluster."""
    home = names.SYSTEM_NAMESPACE
    here = cel_list(kinds.KINDS[kind].plural for kind in (kinds.CONFIG_MAP, kinds.LEASE))
    resource = "request.resource.resource"
    slices = kinds.KINDS[kinds.ENDPOINT_SLICE].plural
    may = (
        f"{resource} in {here}",
        f"({resource} == 'namespaces' && request.operation != 'DELETE')",
        f"({resource} == '{slices}' && request.name == '{names.DASHBOARD_SERVICE}')",
    )
    at_home = f"({' || '.join(may)})"
    in_namespaces = f"request.namespace == '{home}' ? {at_home} : request.namespace.startsWith('{prefix}')"
    of_cluster = f"request.name == '{names.PRIORITY_CLASS}'"
    if engine:
        groups = sorted({group_of(kind) for kind in (*kinds.of_engine(engine), kinds.PRIORITY_CLASS)})
        of_cluster = f"request.resource.group in {cel_list(groups)}"
    own = f"!has(request.namespace) ? {of_cluster} : ({in_namespaces})"
    return "gpuctl-stays-home", {
        "matchConstraints": everywhere(rule("*", "*", ("*",), (*_WRITES, "DELETE"))),
        "matchConditions": [{"name": "the-controller", "expression": f"request.userInfo.username == '{ACCOUNT}'"}],
        "validations": [
            validation(
                f"{resource} == '{kinds.KINDS[kinds.EVENT].plural}' || ({own})",
                f"gpuctl writes in namespaces that begin with {prefix} (gpuctl install --cluster-prefix) and its own",
            )
        ],
    }


def _gpu_pods(makers: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Refuses GPUs, by any way, in pods of others; and any pod that bypasses the scheduler.

    An update of a pod, gpuctl's included, may add ephemeral containers: only those are judged.
    """
    by_maker = f"request.userInfo.username in {cel_list(makers)}"
    ours = f"{by_maker} && '{names.JOB_LABEL}' in object.metadata.?labels.orValue({{}})"
    added = "dyn({'ephemeralContainers': dyn(object).spec.?ephemeralContainers.orValue([])})"
    lists = ("containers", "initContainers", "ephemeralContainers")
    containers = " + ".join(f"variables.pod.?{kind}.orValue([])" for kind in lists)
    return "gpuctl-gpu-pods", {
        "matchConstraints": in_projects(
            rule("", "v1", ("pods",), ("CREATE",)), rule("", "v1", ("pods/ephemeralcontainers",), ("UPDATE",))
        ),
        "variables": [
            variable("ours", ours),
            variable("pod", f"request.operation == 'UPDATE' ? {added} : dyn(object).spec"),
            variable("notes", "request.operation == 'UPDATE' ? {} : object.metadata.?annotations.orValue({})"),
            variable("containers", containers),
        ],
        "validations": [
            *(validation(f"variables.ours || !({way})", text) for way, text in ways()),
            validation(
                f"!(variables.ours && '{_OF_RAY}' in object.metadata.labels) || {hides_gpus_before()}",
                "KubeRay's wait-gcs-ready runs the job's image with all GPUs of the node in sight: start KubeRay with "
                "ENABLE_INIT_CONTAINER_INJECTION=false",
            ),
            validation(
                "variables.pod.?nodeName.orValue('') == ''",
                "spec.nodeName goes past the scheduler and its account of GPUs",
            ),
        ],
    }


def _pod_updates(makers: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Refuses changes of an existing pod that would give it GPUs or let it run on a GPU node."""
    notes, tolerations = (
        "dyn({}).metadata.?annotations.orValue({{}})".format,
        "dyn({}).spec.?tolerations.orValue([])".format,
    )
    same_notes = _same(notes("object"), notes("oldObject"), is_gpu_note())
    return "gpuctl-pod-updates", {
        "matchConstraints": in_projects(rule("", "v1", ("pods",), ("UPDATE",))),
        "matchConditions": [by_others(makers)],
        "validations": [
            validation(
                f"({same_notes}) || {MAY_PATCH_NODES}",
                "annotations that give a pod GPUs are written by gpuctl, schedulers and nodes only",
            ),
            validation(
                f"{tolerations('object')}.all(t, !{reaches_gpu_nodes()} || t in {tolerations('oldObject')})",
                "only gpuctl's pods tolerate the taints of GPU nodes",
            ),
        ],
    }


def _marks(makers: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Only gpuctl writes its labels and annotations, and only gpuctl changes objects that carry them.

    A deleted claim template may not be replaced: the next pod of its run would claim what the new one says.
    """
    return "gpuctl-marks", {
        "matchConstraints": in_projects(
            *_makers_of_pods(), rule("resource.k8s.io", "*", ("resourceclaims", "resourceclaimtemplates"), _WRITES)
        ),
        "matchConditions": [by_others(makers)],
        "variables": [
            variable("now", _places_of("object")),
            variable("before", f"request.operation == 'UPDATE' ? {_places_of('oldObject')} : {[{}] * len(_PLACES)}"),
        ],
        "validations": [
            validation(
                f"{list(range(len(_PLACES)))}.all(i, {_same('variables.now[i]', 'variables.before[i]', _IS_MARK)})",
                f"labels and annotations of {_MARK[:-1]} are written by gpuctl only: declare the job in Git",
            ),
            validation(
                f"!variables.before.exists(m, m.exists(k, {_IS_MARK})) || dyn(object).?spec == dyn(oldObject).?spec",
                "this is gpuctl's: change its declaration in Git",
            ),
            validation(
                f"request.resource.resource != 'resourceclaimtemplates' || !dyn(object).metadata.name.{_OF_RUNS}",
                "what is called like this is gpuctl's, and a run's pods claim what it says: declare the job in Git",
            ),
        ],
    }


def _own_objects(makers: Sequence[str], duties: Duties) -> tuple[str, Mapping[str, Any]]:
    """Only gpuctl writes the label by which the controller knows its own objects, which it keeps whole in memory."""
    own = [kind for kind in kinds.KINDS if kind in kinds.RENDERED - kinds.CLUSTER_SCOPED and kind != kinds.CONFIG_MAP]
    pairs = dict.fromkeys((*((group_of(kind), kinds.KINDS[kind].plural) for kind in own), *duties.pairs))
    label = f"metadata.?labels[?'{names.MANAGED_BY_LABEL}'].orValue('') == '{names.MANAGED_BY}'"
    return "gpuctl-own-objects", {
        "matchConstraints": in_projects(*(rule(group, "*", (plural,), _WRITES) for group, plural in pairs)),
        "matchConditions": [by_others(makers)],
        "validations": [
            validation(
                f"!(dyn(object).{label}) || (request.operation == 'UPDATE' && dyn(oldObject).{label})",
                f"the label {names.MANAGED_BY_LABEL}: {names.MANAGED_BY} is written by gpuctl only",
            )
        ],
    }


def _owners(makers: Sequence[str], duties: Duties) -> tuple[str, Mapping[str, Any]]:
    """Only Kubernetes' controllers write the owner of a pod or a claim: with a forged one it would count as a run's.

    The owner is in a reference. The Job controller adds that reference to each pod without an owner that has the labels
    of its Job. Pods also get such labels from a template, and lose their owner when only their workload is deleted.
    """
    owners = "['Job', 'ReplicaSet', 'Deployment', 'StatefulSet']"
    workload = f"o.kind in {owners} && o.apiVersion.split('/')[0] in ['batch', 'apps']"
    groups = dict.fromkeys(group for group, _ in duties.pairs)
    others = f"o.apiVersion.split('/')[0] in {cel_list(groups)} && variables.more"
    pod = "o.kind == 'Pod' && o.apiVersion == 'v1' && request.resource.resource in ['resourceclaims', 'statefulsets']"
    by_server = "request.resource.resource == 'jobs' && !dyn(object).spec.?manualSelector.orValue(false)"
    is_own = f"k in {cel_list(_OWN_PODS)}"
    before = "request.operation == 'UPDATE' ? dyn(oldObject).metadata.{} : {}".format
    return "gpuctl-owners", {
        "matchConstraints": in_projects(*_makers_of_pods(), rule("resource.k8s.io", "*", ("resourceclaims",), _WRITES)),
        "matchConditions": [by_others(makers, "system:kube-scheduler")],
        "variables": [
            variable("more", _are_more(makers)),
            variable("ownersBefore", before("?ownerReferences.orValue([])", "[]")),
            variable("labels", "dyn(object).metadata.?labels.orValue({})"),
            variable("labelsBefore", before("?labels.orValue({})", "{}")),
            variable("made", "dyn(object).?spec.?template.?metadata.?labels.orValue({})"),
        ],
        "validations": [
            validation(
                f"dyn(object).metadata.?ownerReferences.orValue([]).all(o, "
                f"!(({workload}) || ({others}) || ({pod})) || variables.ownersBefore.exists(b, b.uid == o.uid))",
                "owners that are workloads are written by Kubernetes' controllers only",
            ),
            validation(
                f"(request.resource.resource != 'pods' || variables.labels.all(k, !({is_own}) || "
                "(k in variables.labelsBefore && variables.labelsBefore[k] == variables.labels[k])))"
                f" && (({by_server}) || !variables.made.exists(k, {is_own}))",
                "labels of a Job's own pods are written by its controller only",
            ),
        ],
    }


def _other_workloads(makers: Sequence[str], duties: Duties) -> tuple[str, Mapping[str, Any]]:
    """Where a controller is trusted with gpuctl's labels, other users may not let it create objects with them.

    Such a controller's objects have pod templates in lists, which no expression of `_marks` reaches, so other users may
    not write them here at all. If only Kubernetes' own controllers are trusted, marks from other controllers have no
    effect.
    """
    pairs = (*duties.pairs, *((group, plural) for group, plurals in _ALSO_MADE.items() for plural in plurals))
    rules = [rule(group, "*", (plural,), _WRITES) for group, plural in dict.fromkeys(pairs)]
    return "gpuctl-other-workloads", {
        "matchConstraints": in_projects(*rules),
        "matchConditions": [by_others(makers), {"name": "more-are-trusted", "expression": _are_more(makers)}],
        "validations": [
            validation(
                "dyn(object).?spec == dyn(oldObject).?spec && request.operation == 'UPDATE'",
                "in this namespace such an object is declared in Git, as the manifest of a job",
            )
        ],
    }


def _makers_of_pods() -> Iterator[Mapping[str, Any]]:
    """Pods, and every kind that makes them, directly or not."""
    yield rule("", "v1", ("pods", "pods/resize", "replicationcontrollers"), _WRITES)
    yield rule("apps", "v1", ("deployments", "replicasets", "statefulsets", "daemonsets"), _WRITES)
    yield rule("batch", "v1", ("jobs", "cronjobs"), _WRITES)


def _scale(makers: Sequence[str], duties: Duties) -> tuple[str, Mapping[str, Any]]:
    """Git decides how many pods a run has. Other controllers' objects have selectors that are not gpuctl's: there,
    names decide."""
    resources = ("deployments/scale", "replicasets/scale", "statefulsets/scale")
    others = (rule(group, "*", (f"{plural}/scale",), ("UPDATE",)) for group, plural in duties.pairs)
    return "gpuctl-scale", {
        "matchConstraints": in_projects(rule("apps", "v1", resources, ("UPDATE",)), *others),
        "matchConditions": [by_others(makers, AUTOSCALER)],
        "validations": [
            validation(
                f"!dyn(oldObject).?status.?selector.orValue('').contains('{_MARK}') && !request.name.{_OF_RUNS}",
                "this is gpuctl's: change its replicas in Git",
            )
        ],
    }


def _autoscalers(makers: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Only gpuctl makes an autoscaler for an object with a name like a run's: Git decides which services scale.

    The engine reads the status of gpuctl's autoscalers, so only Kubernetes' controller may write it.
    """
    resources = ("horizontalpodautoscalers", "horizontalpodautoscalers/status")
    return "gpuctl-autoscalers", {
        "matchConstraints": in_projects(rule("autoscaling", "*", resources, _WRITES)),
        "matchConditions": [by_others(makers, AUTOSCALER)],
        "validations": [
            validation(
                f"!dyn(object).spec.scaleTargetRef.name.{_OF_RUNS}",
                "what is called like this is gpuctl's: declare its scaling in Git",
            )
        ],
    }


def _services(makers: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Refuses external IPs of Services: every node would send the Service what any pod sends to that address."""
    external = "dyn({}).spec.?externalIPs.orValue([])".format
    before = f"request.operation == 'UPDATE' ? {external('oldObject')} : []"
    return "gpuctl-services", {
        "matchConstraints": in_projects(rule("", "v1", ("services",), _WRITES)),
        "matchConditions": [by_others(makers)],
        "variables": [variable("before", before)],
        "validations": [
            validation(
                f"{external('object')}.all(ip, ip in variables.before) || {MAY_PATCH_NODES}",
                "externalIPs have the nodes send this Service what pods of all teams send to these addresses",
            )
        ],
    }


def _places_of(source: str) -> str:
    """The mappings that may contain marks, as a CEL list."""
    return "[" + ", ".join(f"dyn({source}).{place}.orValue({{}})" for place in _PLACES) + "]"


def _same(now: str, before: str, matters: str) -> str:
    """Whether two mappings are equal in the keys `k` that matter."""
    kept = f"{now}.all(k, !({matters}) || (k in {before} && {before}[k] == {now}[k]))"
    return f"{kept} && {before}.all(k, !({matters}) || k in {now})"


def _are_more(makers: Sequence[str]) -> str:
    """Whether controllers besides Kubernetes' own are trusted; a template of a chart has the list."""
    return f"{cel_list(makers)}.size() > {len(MAKERS)}"
