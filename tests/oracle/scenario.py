"""A world as a Scenario file, for `gpuctl simulate`: the judged job is expected to run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from .histories import History
from .worlds import JobSpec, OwnerSpec, WorldSpec

API = "gpuctl.dev/v1"


class _Compact(yaml.SafeDumper):
    """Writes documents on one line each."""


def scenario(spec: WorldSpec, name: str, why: str, job: str) -> str:
    """The file's text."""
    base = spec.without(spec.wanted) if spec.wanted else spec
    when = [{"at": "1s", "apply": [_job(spec, spec.job(spec.wanted))]}] if spec.wanted else []
    return _file(base, name, why, [when, [{"at": "end", "jobs": {job: {"state": "Running"}}}]])


def history_scenario(history: History, name: str, why: str, job: str) -> str:
    """The file's text; the expectation is that the job runs, if there is one."""
    projects = {project.name: project for project in history.world.projects}
    when = []
    for index, change in enumerate(history.changes):
        event: dict[str, Any] = {"at": f"{index + 1}m"}
        match change.kind:
            case "add" if change.job is not None:
                event["apply"] = [_job(history.world, change.job)]
            case "remove":
                event["delete"] = [change.name]
            case "finish":
                event["finish"] = {"job": change.name, "exitCode": 0}
            case "quota":
                projects[change.name] = replace(projects[change.name], quotas=change.quotas)
                event["apply"] = [_owner(history.world, "Project", projects[change.name])]
            case _:
                event["node"] = {"name": change.name, "ready": change.kind == "return"}
        when.append(event)
    expect = [{"at": "end", "jobs": {job: {"state": "Running"}}}] if job else []
    return _file(history.world, name, why, [when, expect])


def _file(spec: WorldSpec, name: str, why: str, then: list[list[dict[str, Any]]]) -> str:
    documents = [_cluster(spec)]
    documents += [_owner(spec, "Department", each) for each in spec.departments]
    documents += [_owner(spec, "Project", each) for each in spec.projects]
    documents += [_job(spec, each) for each in spec.jobs]
    running = [
        {"job": run.job, "since": f"-{run.ago_s}s", "placement": [{"node": n, "gpus": list(g)} for n, g in run.places]}
        for run in spec.runs
        if run.places
    ]
    queued = [{"job": run.job, "since": f"-{run.ago_s}s"} for run in spec.runs if not run.places]
    lines = [f"apiVersion: {API}", "kind: Scenario", f"metadata: {{name: {name}}}", f"why: {_line(why)}", "given:"]
    lines += ["  documents:", *(f"  - {_line(document)}" for document in documents)]
    for key, runs in (("running", running), ("queued", queued)):
        lines += [f"  {key}:", *(f"  - {_line(run)}" for run in runs)] if runs else []
    for key, entries in zip(("when", "expect"), then, strict=True):
        lines += [f"{key}:", *(f"- {_line(entry)}" for entry in entries)] if entries else []
    return "\n".join(lines) + "\n"


def _line(value: Any) -> str:
    text = yaml.dump(value, Dumper=_Compact, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def _gpus(milli: int) -> int | float:
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def _cluster(spec: WorldSpec) -> dict[str, Any]:
    pools = [
        {
            "name": pool.name,
            "nodes": [{"name": name, "gpus": gpus} for name, gpus in zip(pool.node_names(), pool.nodes, strict=True)],
            "gpuMemory": "32Gi",
            "resourcesPerNode": {"cpu": 64, "memory": "512Gi"},
            "selector": {"matchLabels": {"gpuctl.dev/pool": pool.name}},
            **({"sharing": "dra"} if pool.fractions else {}),
            **({"placement": "spread"} if pool.spread else {}),
        }
        for pool in spec.pools
    ]
    scheduling: dict[str, Any] = {}
    if not spec.consolidation:
        scheduling["consolidation"] = False
    if spec.overcommit:
        scheduling["overcommitQuota"] = True
    fair = f"{spec.fair_runtime_s}s"
    scheduling["minRuntime"] = {"guarantee": f"{spec.min_runtime_s}s", "fairness": fair, "moves": fair}
    body = {"nodePools": pools, **({"scheduling": scheduling} if scheduling else {})}
    return {"apiVersion": API, "kind": "Cluster", "metadata": {"name": "c"}, "spec": body}


def _owner(spec: WorldSpec, kind: str, owner: OwnerSpec) -> dict[str, Any]:
    names = [name for name, _ in spec.domains]
    by_pool = {name: _gpus(quota) for name, quota in zip(names, owner.quotas, strict=True)}
    body: dict[str, Any] = {"quota": by_pool if spec.by_pool else _gpus(owner.quotas[0])}
    if owner.limit is not None:
        body["limit"] = _gpus(owner.limit)
    if owner.weight is not None:
        body["overQuotaWeight"] = owner.weight
    if owner.department is not None:
        body["department"] = owner.department
    if owner.priority:
        body["priority"] = owner.priority
    return {"apiVersion": API, "kind": kind, "metadata": {"name": owner.name}, "spec": body}


def _job(spec: WorldSpec, job: JobSpec) -> dict[str, Any]:
    body: dict[str, Any] = {"image": "train", "gpus": _gpus(job.milli)}
    if job.kind != "training":
        body |= {"type": job.kind, "command": ["sleep", "infinity"]}
    if job.workers > 1:
        body["workers"] = job.workers
    if job.least < job.workers:
        body["minWorkers"] = job.least
    if job.priority:
        body["priority"] = job.priority
    if job.preemptible != (job.kind == "training"):
        body["preemptible"] = job.preemptible
    if job.in_order or len(job.pools) < len(spec.pools):
        body["nodePools"] = list(job.pools)
    return {"apiVersion": API, "kind": "Job", "metadata": {"name": job.name, "project": job.project}, "spec": body}
