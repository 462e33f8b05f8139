"""A change that reaches a run's pods starts a new run: the digest says so, or the field is named as an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from sample import admit, declared, job, pending, pool, run_body

from gpuctl.compile.digest import NEEDS_NO_NEW_RUN, run_digest
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s import kinds, names
from gpuctl.model.decision import Decision
from gpuctl.model.ids import JobId, PoolName, ProjectName, RunDigest
from gpuctl.model.job import (
    Container,
    Dependency,
    EnvSource,
    Expose,
    ExposeVia,
    ExtraContainer,
    Framework,
    GitCheckout,
    HostAlias,
    Job,
    JobType,
    MetricSource,
    Mount,
    OtherWorkload,
    OwnAmounts,
    Probe,
    Probes,
    RunAs,
    Scaling,
    SecretKey,
    Success,
    SweepIndex,
)
from gpuctl.model.volumes import (
    ClaimVolume,
    HostPathVolume,
    NewClaimVolume,
    NfsVolume,
)

OTHERWISE: Mapping[str, Mapping[str, Any]] = {
    "Job": {
        "type": JobType.INTERACTIVE, "gpu_milli": 2000, "gpu_mem_bytes": 8 * 1024**3, "workers": 2, "min_workers": 0,
        "cpu_milli": 500, "mem_bytes": 2**30, "priority": 7, "preemptible": False, "max_duration_ms": 60_000,
        "idle_timeout_ms": 60_000, "pause_grace_ms": 60_000, "pools": (PoolName("other"),), "pools_in_order": True,
        "suspend": True, "run_index": 2, "after": (Dependency(job=JobId(ProjectName("team-a"), "before")),),
        "ttl_ms": 60_000, "checkpoint_ms": 60_000, "parallelism": 2,
        "sweep": SweepIndex(sweep="a", key="1", values={"LR": "0.1"}), "position": 1,
        "scaling": Scaling(metric="requests", source=MetricSource.PODS, target_milli=10_000, most=4),
    },
    "Container": {
        "image": "other", "image_pull_policy": "Always", "command": ("run",), "args": ("--x",), "working_dir": "/w",
        "env": {"A": SecretKey(secret="hub", key="token")}, "expose": (Expose(port=80, via=ExposeVia.SERVICE),),
        "large_shm": True, "volumes": (ClaimVolume(claim="c", mount_path="/c"),), "retries": 2,
        "retries_per_worker": 2,
        "env_from": (EnvSource(secret="s", config_map=None, prefix="S_"),), "pull_secrets": ("registry",),
        "run_as": RunAs(user=1000, group=1000, further_groups=(5,), fs_group=6, read_only_root=True, added=("CHOWN",),
                        dropped=("ALL",), seccomp="RuntimeDefault"),
        "labels": {"team": "a"}, "annotations": {"note": "a"}, "tty": True, "pre_stop": ("save",),
        "host_aliases": (HostAlias(ip="10.0.0.7", hostnames=("data",)),), "dns_policy": "Default",
        "git": GitCheckout(repository="https://x/y", revision="v1", path="/code", secret=None, size_bytes=2**30),
        "framework": Framework.PYTORCH, "success": Success.ANY,
        "manifest": OtherWorkload(api_version=kinds.JOB_SET[0], kind=kinds.JOB_SET[1], pods=1, text=json.dumps({
            "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": {
                "containers": [{"name": "main", "image": "other"}]}}}}}]}})),
        "probes": Probes(startup=Probe(port=80, path="/", delay_ms=5000), readiness=Probe(port=80, period_ms=5000),
                         liveness=Probe(command=("alive",), timeout_ms=2000, failures=1)),
        "init_containers": (ExtraContainer(name="a", image="y", image_pull_policy="Always", gpus=1),),
        "sidecars": (ExtraContainer(name="b", image="y", image_pull_policy="Always", before_init=True),),
        "own": OwnAmounts(cpu_milli=7, mem_bytes=7),
    },
}  # fmt: skip
"""Of each field another value than `BASE` has."""
NOT_DECLARED_AS_SUCH: Mapping[str, Mapping[str, Any]] = {
    "Job": {
        "id": JobId(ProjectName("team-a"), "b"), "digest": RunDigest("00000000"), "span": SourceSpan(file="x.yaml"),
        "container": Container(image="other"),
    },
    "Container": {},
}  # fmt: skip
FROM_NOW_ON = {"pools", "pause_grace_ms"}
"""Reaches pods that are started from now on: where they may go, and how long they may take to stop. Pods that are there
stay as they are."""
NOT_IN_A_POD = {"type", "min_workers", "run_index", "success", "retries_per_worker"}
"""The engine or the Job's controller reads these, and a run with another of them is another one."""

BASE = job()
ALL = [(of, name) for of, values in OTHERWISE.items() for name in values]


def changed(of: str, name: str) -> Job:
    value = {name: OTHERWISE[of][name]}
    return replace(BASE, **value) if of == "Job" else replace(BASE, container=replace(BASE.container, **value))


def pods_of(one: Job) -> list[Any]:
    cluster = declared(one, pools=(pool(), pool("other")))
    node = f"{one.pools[0]}-1"
    decisions: list[Decision] = [pending(one), admit(one, *[(node, (0, 1)[: one.gpu_milli // 1000])] * one.workers)]
    specs = [run_body(cluster, decision)["spec"] for decision in decisions]
    templates = [_template(spec) for spec in specs]
    for template in templates:
        del template["metadata"]["labels"][names.RUN_LABEL]
    return templates


def _template(spec: Any) -> Any:
    first = spec.get("replicatedJobs", [None])[0]
    return spec["template"] if first is None else first["template"]["spec"]["template"]


def test_every_field_is_looked_at_here() -> None:
    for of in (Job, Container):
        named = OTHERWISE[of.__name__].keys() | NOT_DECLARED_AS_SUCH[of.__name__].keys()
        assert {field.name for field in fields(of)} == named


@pytest.mark.parametrize(("of", "name"), ALL)
def test_a_field_is_in_the_digest_unless_it_is_named(of: str, name: str) -> None:
    exempt = NEEDS_NO_NEW_RUN[{"Job": Job, "Container": Container}[of]]
    assert (run_digest(changed(of, name)) == run_digest(BASE)) == (name in exempt)


@pytest.mark.parametrize(("of", "name"), ALL)
def test_what_reaches_the_pods_is_another_run(of: str, name: str) -> None:
    if pods_of(changed(of, name)) != pods_of(BASE):
        assert run_digest(changed(of, name)) != run_digest(BASE) or name in FROM_NOW_ON


@pytest.mark.parametrize(("of", "name"), ALL)
def test_another_run_has_other_pods(of: str, name: str) -> None:
    if run_digest(changed(of, name)) != run_digest(BASE):
        assert pods_of(changed(of, name)) != pods_of(BASE) or name in NOT_IN_A_POD


WHOLE = ExtraContainer(name="a", image="y", image_pull_policy="Always", mounts=(Mount(volume="/c", mount_path="/c"),))
ONE_OTHERWISE: Mapping[str, Any] = {
    "name": "b", "image": "z", "image_pull_policy": "Never", "command": ("run",), "args": ("--x",),
    "working_dir": "/w", "env": {"A": "b"}, "env_from": (EnvSource(secret="s", config_map=None, prefix="S_"),),
    "gpus": 1, "cpu_milli": 1, "mem_bytes": 1, "mounts": (), "run_as": RunAs(user=1),
    "probes": Probes(startup=Probe(port=80)), "before_init": True,
}  # fmt: skip


def with_sidecar(sidecar: ExtraContainer) -> Job:
    volumes = (ClaimVolume(claim="c", mount_path="/c"),)
    first = ExtraContainer(name="init", image="y", image_pull_policy="Always")
    return replace(
        BASE, container=replace(BASE.container, volumes=volumes, init_containers=(first,), sidecars=(sidecar,))
    )


@pytest.mark.parametrize("name", [field.name for field in fields(ExtraContainer)])
def test_every_field_of_another_container_reaches_the_pods_of_another_run(name: str) -> None:
    before, after = with_sidecar(WHOLE), with_sidecar(replace(WHOLE, **{name: ONE_OTHERWISE[name]}))
    assert run_digest(before) != run_digest(after)
    assert pods_of(before) != pods_of(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterJob(Job):
    later: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterContainer(Container):
    later: bool = False


def with_fields_of(of: type[Any], value: object, **more: object) -> Any:
    told = {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
    return of(**told, **more)


def test_a_field_that_is_added_is_in_the_digest_where_it_is_set() -> None:
    job_as_now = with_fields_of(LaterJob, BASE)
    container_as_now = replace(BASE, container=with_fields_of(LaterContainer, BASE.container))
    assert run_digest(job_as_now) == run_digest(container_as_now) == run_digest(BASE)
    set_on_job = with_fields_of(LaterJob, BASE, later=("x",))
    set_on_container = replace(BASE, container=with_fields_of(LaterContainer, BASE.container, later=True))
    assert len({run_digest(each) for each in (BASE, set_on_job, set_on_container)}) == 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterVolume:
    mount_path: str


def test_a_new_kind_of_volume_has_to_be_told() -> None:
    volumes: Any = (LaterVolume(mount_path="/x"),)
    with pytest.raises(TypeError, match="LaterVolume"):
        run_digest(replace(BASE, container=replace(BASE.container, volumes=volumes)))


def test_digests_of_volumes_and_variables_never_change_between_versions() -> None:
    container = Container(
        image="x",
        env={"A": "ü", "B": SecretKey(secret="s", key="k")},
        volumes=(
            ClaimVolume(claim="c", mount_path="/c", read_only=True),
            NewClaimVolume(size_bytes=5, storage_class=None, mount_path="/n"),
            HostPathVolume(host_path="/h", mount_path="/h"),
        ),
    )
    assert run_digest(replace(BASE, container=container)) == "92f76c20"
    assert run_digest(replace(BASE, gpu_mem_bytes=8 * 1024**3)) == "2b87ef3a"
    share = Container(image="x", volumes=(NfsVolume(server="s", path="/p", mount_path="/n"),))
    assert run_digest(replace(BASE, container=share)) == "7bd95f65"
