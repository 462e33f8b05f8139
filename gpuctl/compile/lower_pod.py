"""Lowers the content of a job's pods from the declared form to the values of `model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuctl.compile import pod_v1, spec_v1
from gpuctl.compile.containers_v1 import ContainerSecurity, InitContainer, Sidecar
from gpuctl.compile.manifest_v1 import as_json
from gpuctl.compile.volumes_v1 import ProjectedSource, Volume
from gpuctl.compile.worker import started, worker_of
from gpuctl.k8s.objects import mapping
from gpuctl.k8s.workload_kinds import made_of, sum_of
from gpuctl.k8s.workload_table import Rows
from gpuctl.model import job as job_model
from gpuctl.model import volumes
from gpuctl.model.units import WHOLE_GPU


def container_of(spec: spec_v1.JobSpec, rows: Rows) -> job_model.Container:
    """Everything that runs in a job's pods, all defaults filled in. `rows`: the kinds that a manifest may be."""
    return job_model.Container(
        image=spec.image,
        image_pull_policy=spec.image_pull_policy,
        command=tuple(spec.command),
        args=tuple(spec.args),
        working_dir=spec.working_dir,
        env={name: _env(value) for name, value in sorted(spec.env.items())},
        expose=tuple(job_model.Expose(port=e.port, via=job_model.ExposeVia(e.via)) for e in spec.expose),
        large_shm=spec.large_shm,
        volumes=tuple(_volume(volume) for volume in spec.volumes),
        retries=spec.retries,
        env_from=_env_from(spec.env_from),
        pull_secrets=tuple(spec.image_pull_secrets),
        pre_stop=tuple(spec.pre_stop),
        run_as=_run_as(spec.security),
        labels=dict(sorted(spec.labels.items())),
        annotations=dict(sorted(spec.annotations.items())),
        tty=spec.tty,
        host_aliases=tuple(
            job_model.HostAlias(ip=each.ip, hostnames=tuple(each.hostnames)) for each in spec.host_aliases
        ),
        dns_policy=spec.dns_policy,
        git=None if spec.git is None else _git(spec.git),
        framework=None if spec.framework is None else job_model.Framework(spec.framework),
        success=job_model.Success(spec.success),
        manifest=None if spec.manifest is None else _manifest(spec.manifest, rows),
        probes=_probes(spec.probes),
        init_containers=tuple(_extra(each, spec) for each in spec.init_containers),
        sidecars=tuple(_sidecar(each, spec) for each in spec.sidecars),
        own=_own_amounts(spec),
        retries_per_worker=spec.retries_per_worker,
    )


def _own_amounts(spec: spec_v1.JobSpec) -> job_model.OwnAmounts | None:
    """The amounts of the job's own container; None if no other container asks for any."""
    if worker_of(spec) == (spec.gpus, spec.resources.cpu, spec.resources.memory):
        return None
    with_gpus = any(each.container.gpus for each in started(spec))
    return job_model.OwnAmounts(
        cpu_milli=spec.resources.cpu,
        mem_bytes=spec.resources.memory,
        gpus=spec.gpus // WHOLE_GPU if with_gpus else None,
    )


def _run_as(spec: pod_v1.PodSecurity) -> job_model.RunAs:
    return job_model.RunAs(
        user=spec.run_as_user,
        group=spec.run_as_group,
        further_groups=tuple(spec.supplemental_groups),
        fs_group=spec.fs_group,
        read_only_root=spec.read_only_root_filesystem,
        added=tuple(spec.capabilities.add),
        dropped=tuple(spec.capabilities.drop),
        seccomp=spec.seccomp,
    )


def _extra(one: InitContainer, spec: spec_v1.JobSpec) -> job_model.ExtraContainer:
    read_only = {volume.mount_path for volume in spec.volumes if volume.read_only}
    return job_model.ExtraContainer(
        name=one.name,
        image=one.image,
        image_pull_policy=one.image_pull_policy or spec.image_pull_policy,
        command=tuple(one.command),
        args=tuple(one.args),
        working_dir=one.working_dir,
        env={name: _env(value) for name, value in sorted(one.env.items())},
        env_from=_env_from(one.env_from),
        gpus=one.gpus,
        cpu_milli=one.resources.cpu,
        mem_bytes=one.resources.memory,
        mounts=tuple(
            job_model.Mount(
                volume=each.volume,
                mount_path=each.mount_path or each.volume,
                read_only=each.read_only or each.volume in read_only,
            )
            for each in one.mounts
        ),
        run_as=_run_as_itself(one.security, spec.security),
    )


def _sidecar(one: Sidecar, spec: spec_v1.JobSpec) -> job_model.ExtraContainer:
    return replace(_extra(one, spec), probes=_probes(one.probes), before_init=one.before_init)


def _run_as_itself(own: ContainerSecurity, of_job: pod_v1.PodSecurity) -> job_model.RunAs:
    """A container's own values, else the job's, except for those that apply to the whole pod."""
    capabilities = own.capabilities or of_job.capabilities
    read_only = own.read_only_root_filesystem
    return job_model.RunAs(
        user=own.run_as_user,
        group=own.run_as_group,
        read_only_root=of_job.read_only_root_filesystem if read_only is None else read_only,
        added=tuple(capabilities.add),
        dropped=tuple(capabilities.drop),
        seccomp=own.seccomp,
    )


def _env_from(sources: list[pod_v1.EnvSource]) -> tuple[job_model.EnvSource, ...]:
    return tuple(
        job_model.EnvSource(secret=each.secret, config_map=each.config_map, prefix=each.prefix) for each in sources
    )


def _probes(spec: pod_v1.Probes) -> job_model.Probes:
    return job_model.Probes(
        startup=_probe(spec.startup), readiness=_probe(spec.readiness), liveness=_probe(spec.liveness)
    )


def _manifest(manifest: Mapping[str, Any], rows: Rows) -> job_model.OtherWorkload:
    row, spec = rows[manifest["apiVersion"], manifest["kind"]], mapping(manifest, "spec")
    return job_model.OtherWorkload(
        api_version=row.kind[0],
        kind=row.kind[1],
        text=as_json(manifest),
        pods=sum_of(row, spec).pods,
        made=made_of(row, spec),
    )


def _git(spec: pod_v1.GitCheckout) -> job_model.GitCheckout:
    return job_model.GitCheckout(
        repository=spec.repository, revision=spec.revision, path=spec.path, secret=spec.secret, size_bytes=spec.size
    )


def _probe(probe: pod_v1.Probe | None) -> job_model.Probe | None:
    if probe is None:
        return None
    asked = probe.http or probe.tcp
    return job_model.Probe(
        port=None if asked is None else asked.port,
        path=None if probe.http is None else probe.http.path,
        command=tuple(probe.exec or ()),
        delay_ms=probe.delay or 0,
        period_ms=probe.period,
        timeout_ms=probe.timeout,
        failures=probe.failures,
    )


def _env(value: str | pod_v1.SecretKey) -> job_model.EnvValue:
    return value if isinstance(value, str) else job_model.SecretKey(secret=value.secret, key=value.key)


def _volume(volume: Volume) -> volumes.Volume:
    mount, read_only = volume.mount_path, volume.read_only
    if volume.new_claim is not None:
        return volumes.NewClaimVolume(
            size_bytes=volume.new_claim.size,
            storage_class=volume.new_claim.storage_class,
            mount_path=mount,
            read_only=read_only,
        )
    if volume.secret is not None:
        return volumes.SecretVolume(secret=volume.secret, mount_path=mount, read_only=read_only)
    if volume.config_map is not None:
        return volumes.ConfigMapVolume(config_map=volume.config_map, mount_path=mount, read_only=read_only)
    if volume.empty_dir is not None:
        return volumes.EmptyDirVolume(size_bytes=volume.empty_dir.size, mount_path=mount, read_only=read_only)
    if volume.projected is not None:
        sources = tuple(map(_projected, volume.projected.sources))
        return volumes.ProjectedVolume(sources=sources, mount_path=mount, read_only=read_only)
    if volume.csi is not None:
        return volumes.CsiVolume(
            driver=volume.csi.driver,
            attributes=dict(sorted(volume.csi.attributes.items())),
            fs_type=volume.csi.fs_type,
            secret=volume.csi.secret,
            mount_path=mount,
            read_only=read_only,
        )
    if volume.nfs is not None:
        return volumes.NfsVolume(server=volume.nfs.server, path=volume.nfs.path, mount_path=mount, read_only=read_only)
    if volume.host_path is not None:
        return volumes.HostPathVolume(host_path=volume.host_path, mount_path=mount, read_only=read_only)
    return volumes.ClaimVolume(claim=volume.claim or "", mount_path=mount, read_only=read_only)


def _projected(source: ProjectedSource) -> volumes.ProjectedSource:
    return volumes.ProjectedSource(
        secret=source.secret,
        config_map=source.config_map,
        items=dict(sorted(source.items.items())),
        facts=dict(sorted(source.downward_api.items())),
    )
