"""Digests of a job: the run digest, and the digest of everything declared of it.

The run digest: eight hex digits over everything of a job whose change needs a new run. It contains every field of a job
except those named here, so a new field is in it without further code. A new field at its default changes no digest: a
new version of gpuctl replaces no run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from gpuctl.diag.span import SourceSpan
from gpuctl.model.ids import RunDigest
from gpuctl.model.job import (
    Container,
    EnvSource,
    ExtraContainer,
    GitCheckout,
    HostAlias,
    Job,
    Mount,
    OtherWorkload,
    OwnAmounts,
    Probe,
    Probes,
    RunAs,
    SecretKey,
    SweepIndex,
)
from gpuctl.model.volumes import (
    ClaimVolume,
    ConfigMapVolume,
    CsiVolume,
    EmptyDirVolume,
    HostPathVolume,
    NewClaimVolume,
    NfsVolume,
    ProjectedSource,
    ProjectedVolume,
    SecretVolume,
)

NEEDS_NO_NEW_RUN: Mapping[type, frozenset[str]] = {
    Job: frozenset({
        "priority", "preemptible", "max_duration_ms", "idle_timeout_ms", "pause_grace_ms", "pools", "pools_in_order",
        "suspend", "after", "ttl_ms", "checkpoint_ms", "position", "parallelism",
        "scaling",
    }),
    Container: frozenset({"retries", "expose"}),
}  # fmt: skip
"""Fields whose change needs no new run: the engine takes it up, or a write that restarts no pod."""

_NO_FACT: Mapping[type, frozenset[str]] = {
    Job: frozenset({"id", "digest", "container", "span"}),
    OtherWorkload: frozenset({"pods", "made"}),
}
"""Fields that are not declared values, or whose parts are read one by one."""

_ALWAYS: Mapping[type, Mapping[str, str]] = {
    Job: {
        "type": "type", "gpu_milli": "gpus", "gpu_mem_bytes": "gpuMemory", "workers": "workers",
        "min_workers": "minWorkers", "cpu_milli": "cpu", "mem_bytes": "memory", "run_index": "runIndex",
    },
    Container: {
        "image": "image", "image_pull_policy": "imagePullPolicy", "command": "command", "args": "args",
        "working_dir": "workingDir", "env": "env", "volumes": "volumes", "large_shm": "largeShm",
    },
}  # fmt: skip
"""The fields of the first version with their keys. They are in the digest even at their default. Never change this, and
add nothing."""

_IN_ORDER: Mapping[type, tuple[str | None, tuple[str, ...]]] = {
    SecretKey: (None, ("secret", "key")),
    ClaimVolume: ("claim", ("claim", "mount_path", "read_only")),
    NewClaimVolume: ("newClaim", ("size_bytes", "storage_class", "mount_path", "read_only")),
    HostPathVolume: ("hostPath", ("host_path", "mount_path", "read_only")),
    NfsVolume: ("nfs", ("server", "path", "mount_path", "read_only")),
    SecretVolume: ("secret", ("secret", "mount_path", "read_only")),
    ConfigMapVolume: ("configMap", ("config_map", "mount_path", "read_only")),
    EmptyDirVolume: ("emptyDir", ("size_bytes", "mount_path", "read_only")),
    ProjectedSource: (None, ("secret", "config_map", "items", "facts")),
    ProjectedVolume: ("projected", ("sources", "mount_path", "read_only")),
    CsiVolume: ("csi", ("driver", "attributes", "fs_type", "secret", "mount_path", "read_only")),
    EnvSource: (None, ("secret", "config_map", "prefix")),
    GitCheckout: (None, ("repository", "revision", "path", "secret", "size_bytes")),
    HostAlias: (None, ("ip", "hostnames")),
    Mount: (None, ("volume", "mount_path", "read_only")),
    ExtraContainer: (None, ("name", "image")),
    OwnAmounts: (None, ("cpu_milli", "mem_bytes", "gpus")),
    OtherWorkload: (None, ("api_version", "kind", "text")),
    Probe: (None, ("port", "path", "command", "delay_ms", "period_ms", "timeout_ms", "failures")),
    Probes: (None, ("startup", "readiness", "liveness")),
    SweepIndex: (None, ("sweep", "key", "values")),
    RunAs: (None, ("user", "group", "further_groups", "fs_group", "read_only_root")),
}
"""How values within fields are written: as lists of a tag, then the fields of the first version. Never change an entry;
only add new types."""

_WRITTEN = {
    "gpu_milli": "gpus", "gpu_mem_bytes": "gpuMemory", "cpu_milli": "resources.cpu", "mem_bytes": "resources.memory",
    "pull_secrets": "imagePullSecrets", "run_as": "security", "own": "resources",
}  # fmt: skip
"""Fields that have another name in a declaration."""

_OF_A_MANIFEST = frozenset({"gpus", "workers", "minWorkers", "resources.cpu", "resources.memory", "image"})
"""Fields that are computed from a manifest."""

_WITH_ALL_CONTAINERS = frozenset({"gpus", "resources.cpu", "resources.memory", "resources"})
"""Fields that are computed from all containers together."""

_KNOWN = {
    of: frozenset(keys) | NEEDS_NO_NEW_RUN[of] | _NO_FACT.get(of, frozenset[str]()) for of, keys in _ALWAYS.items()
}
"""All fields except those added after the first version."""
_READ = {of: attrgetter(*keys) for of, keys in _ALWAYS.items()}

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def run_digest(job: Job) -> RunDigest:
    """The digest of a job's values: writing the same values in another way does not change it.

    Raises TypeError for a value of a type that is not listed in `_IN_ORDER`. Cost: a step for each field.
    """
    facts = {"project": job.id.project, "name": job.id.name, **_facts(job, Job), **_facts(job.container, Container)}
    if job.gpu_mem_bytes is not None:
        facts["gpus"] = None  # it follows from the memory, and from the pool
    return RunDigest(hashlib.sha256(_ENCODE(facts).encode("ascii")).hexdigest()[:8])


def fields_of_a_new_run(before: Job, after: Job) -> tuple[str, ...]:
    """The fields, as declared, whose change needs a new run; without fields that only follow from others."""
    changed = {
        _WRITTEN.get(field.name, _in_camel_case(field.name))
        for old, new, base in ((before, after, Job), (before.container, after.container, Container))
        for field in fields(base)
        if field.name not in NEEDS_NO_NEW_RUN[base] | _NO_FACT.get(base, frozenset[str]())
        and getattr(old, field.name) != getattr(new, field.name)
    }
    follow = {"gpus"} if after.gpu_mem_bytes is not None and "gpuMemory" in changed else set()
    if not (before.is_elastic or after.is_elastic):
        follow.add("minWorkers")
    if "sweep" in changed:
        follow.add("env")
    if "initContainers" in changed or "sidecars" in changed:
        follow |= _WITH_ALL_CONTAINERS
    if after.container.manifest is not None and "manifest" in changed:
        follow |= _OF_A_MANIFEST
    return tuple(sorted(changed - follow))


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _facts(value: Job | Container, base: type) -> dict[str, Any]:
    facts = dict(zip(_ALWAYS[base].values(), map(_plain, _READ[base](value)), strict=True))
    added = _where_set(value, _KNOWN[base])
    return facts | {f"{base.__name__}.{name}": plain for name, plain in added}


def _where_set(value: object, known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """The fields added after the first version that are not at their default."""
    of: type = type(value)
    for name, default in _added(of, known):
        if getattr(value, name) != default:
            yield name, _plain(getattr(value, name))


@lru_cache
def _added(of: type, known: frozenset[str]) -> tuple[tuple[str, object], ...]:
    return tuple((field.name, _default(field)) for field in fields(of) if field.name not in known)


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: object) -> Any:
    """A value in JSON's types."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if type(value) not in _IN_ORDER:
        raise TypeError(f"no run digest of a {type(value).__name__}: gpuctl/compile/digest.py has to say how")
    tag, names = _IN_ORDER[type(value)]
    added = dict(_where_set(value, frozenset(names) | _NO_FACT.get(type(value), frozenset[str]())))
    return [*([tag] if tag else []), *(_plain(getattr(value, name)) for name in names), *([added] if added else [])]


def content_digest(job: Job) -> bytes:
    """A digest of all that is declared of a job, whichever file declares it. Cost: 20 us, or 1 us from a memo."""
    return hashlib.sha256(repr(replace(job, span=_NOWHERE)).encode()).digest()


_NOWHERE = SourceSpan(file="")
