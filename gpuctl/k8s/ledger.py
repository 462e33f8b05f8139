"""A project's ledger as ConfigMaps in gpuctl's own namespace, and back.

A ledger is one object until its text nears the API server's limit of 1 MiB. Then its head keeps the revision and says
how many shards there are, and each entry is in the shard that the name of its run or object falls to: one run that
ends rewrites one shard. Shards of another number have other names, and are written before the head that counts them.

Each part is one key under `data`, so that one damaged by hand costs only itself. Equal ledgers give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import compact_json, decode_instant
from gpuctl.k8s.bounds import is_amount, is_short, whole_number
from gpuctl.k8s.objects import mapping, text
from gpuctl.k8s.run_entries import entry_of, entry_value
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import NO_REVISION, JobId, ObjectRef, ProjectName, Revision, RunDigest, RunKey
from gpuctl.model.state import Body, FinishedRun, Ledger, Removal, RunEntry
from gpuctl.model.usage import Usage

SHARD_BYTES = 768 * 1024
"""The most that one object of a ledger holds."""

_MOST_SHARDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerObjects:
    """A ledger as it is kept: its head, and its shards if it is split."""

    head: Body
    shards: Mapping[ObjectRef, Body] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReading:
    """A ledger as far as it can be read, and the parts that can't: keys of `data`, or shards ("2 of 4")."""

    ledger: Ledger
    damaged: tuple[str, ...] = ()


def ledger_ref(cluster: str, project: ProjectName) -> ObjectRef:
    """Where a project's ledger is kept, or the head of it."""
    return ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.ledger_name(cluster, project))


def is_ledger(ref: ObjectRef) -> bool:
    """Whether an object that a plan writes is a project's ledger, or a part of one."""
    return (ref.api_version, ref.kind) == kinds.CONFIG_MAP and ref.namespace == names.SYSTEM_NAMESPACE


def shard_refs(cluster: str, project: ProjectName, shards: int) -> tuple[ObjectRef, ...]:
    """Where the shards of a ledger are kept; none for one that is not split."""
    kept = [names.shard_name(cluster, project, number, shards) for number in range(1, shards + 1)] if shards > 1 else []
    return tuple(ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, name) for name in kept)


def shards_of(head: Body | None) -> int:
    """How many shards a ledger's head says there are; 1 when it is not split, 0 when what it says can't be read."""
    stated = mapping(head or {}, "data").get("shards", "1")
    return whole_number(stated, _MOST_SHARDS) or 0


def encode_ledger(cluster: str, ledger: Ledger, shards: int = 1) -> LedgerObjects:
    """The ConfigMaps as gpuctl applies them; `shards` is how many there are so far.

    Their number is doubled when one would be too large, and halved when all would fit an eighth of the room: between
    the two it stays, so that a ledger about a limit is not written anew again and again.
    """
    parts = _split(ledger, max(1, shards))
    while _largest(parts) > SHARD_BYTES and len(parts) < _MOST_SHARDS:
        more = 2 * len(parts)
        while more * SHARD_BYTES < sum(map(_size, parts)):
            more *= 2
        parts = _split(ledger, min(more, _MOST_SHARDS))
    while len(parts) > 1 and sum(map(_size, parts)) <= len(parts) * SHARD_BYTES // 8:
        fewer = _split(ledger, len(parts) // 2)
        if _largest(fewer) > SHARD_BYTES:
            break
        parts = fewer
    facts = {"revision": ledger.revision, **({"content": ledger.content} if ledger.content else {})}
    if ledger.usage is not None:
        facts["usage"] = _usage_text(ledger.usage)
    if ledger.removed:
        facts["removed"] = _removed_text(ledger.removed)
    ref = ledger_ref(cluster, ledger.project)
    if len(parts) == 1:
        return LedgerObjects(head=_config_map(cluster, ledger, ref, {**facts, **parts[0]}))
    refs = shard_refs(cluster, ledger.project, len(parts))
    return LedgerObjects(
        head=_config_map(cluster, ledger, ref, {**facts, "shards": str(len(parts))}),
        shards={shard: _config_map(cluster, ledger, shard, part) for shard, part in zip(refs, parts, strict=True)},
    )


def _usage_text(usage: Usage) -> str:
    at = format_timestamp(usage.at_ms)
    return compact_json({"at": at, "milliHours": usage.milli_hours, "rateMilli": usage.rate_milli})


def _usage(data: Mapping[str, Any]) -> Usage | None:
    """What was used; nothing where that can't be read: it begins anew then."""
    try:
        section = _section(data, "usage")
        at_ms, milli_hours, rate_milli = decode_instant(section["at"]), section["milliHours"], section["rateMilli"]
        amounts = [is_amount(amount) for amount in (milli_hours, rate_milli)]
    except _DAMAGE:
        return None
    return Usage(at_ms=at_ms, milli_hours=milli_hours, rate_milli=rate_milli) if at_ms and all(amounts) else None


def _removed_text(removed: Mapping[str, Removal]) -> str:
    return compact_json({
        name: {"at": format_timestamp(each.at_ms), "revision": each.revision} for name, each in sorted(removed.items())
    })


def _removed(data: Mapping[str, Any]) -> Mapping[str, Removal]:
    """The jobs that were removed last; none where that can't be read: nothing depends on it."""
    try:
        return dict(_removals(_section(data, "removed"))) if "removed" in data else {}
    except _DAMAGE:
        return {}


def _removals(section: dict[str, Any]) -> Iterator[tuple[str, Removal]]:
    for name, value in section.items():
        at_ms, revision = decode_instant(value["at"]), value["revision"]
        if at_ms is None or not is_short(revision):
            raise ValueError(name)
        yield name, Removal(revision=Revision(revision), at_ms=at_ms)


def _config_map(cluster: str, ledger: Ledger, ref: ObjectRef, data: Mapping[str, str]) -> Body:
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.CLUSTER_LABEL: cluster,
        names.PROJECT_LABEL: ledger.project,
        names.LEDGER_LABEL: "true",
    }
    meta = {"name": ref.name, "namespace": ref.namespace, "labels": labels}
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": meta, "data": dict(sorted(data.items()))}


def _split(ledger: Ledger, count: int) -> list[dict[str, str]]:
    """The entries as texts, in so many parts. A run's entries fall to the part of its object's name."""
    if count == 1:
        return [_sections(ledger)]
    inventories: list[set[ObjectRef]] = [set() for _ in range(count)]
    for ref in ledger.inventory:
        inventories[_part_of(ref.name, count)].add(ref)
    seen: list[set[RunKey]] = [set() for _ in range(count)]
    for job, digest in ledger.seen:
        seen[_part_of(names.run_name(job.name, digest), count)].add((job, digest))
    finished: list[dict[RunKey, FinishedRun]] = [{} for _ in range(count)]
    for (job, digest), run in ledger.finished.items():
        finished[_part_of(names.run_name(job.name, digest), count)][job, digest] = run
    runs: list[dict[RunKey, RunEntry]] = [{} for _ in range(count)]
    for (job, digest), entry in ledger.runs.items():
        runs[_part_of(names.run_name(job.name, digest), count)][job, digest] = entry
    return [
        _sections(
            replace(
                ledger,
                inventory=frozenset(inventories[n]),
                seen=frozenset(seen[n]),
                finished=finished[n],
                runs=runs[n],
            )
        )
        for n in range(count)
    ]


def _size(part: Mapping[str, str]) -> int:
    return sum(map(len, part.values()))


def _largest(parts: list[dict[str, str]]) -> int:
    return max(map(_size, parts))


def _part_of(name: str, count: int) -> int:
    return crc32(name.encode()) % count


def _sections(ledger: Ledger) -> dict[str, str]:
    inventory: dict[str, dict[str, list[str]]] = {}
    for entry in sorted(ledger.inventory):
        kind = f"{entry.api_version} {entry.kind}"
        inventory.setdefault(kind, {}).setdefault(entry.namespace, []).append(entry.name)
    seen: dict[str, list[str]] = {}
    for job, digest in sorted(ledger.seen):
        seen.setdefault(job.name, []).append(digest)
    finished: dict[str, dict[str, object]] = {}
    for (job, digest), run in sorted(ledger.finished.items()):
        end = {"at": format_timestamp(run.at_ms), "starts": run.starts, "state": run.state}
        finished.setdefault(job.name, {})[digest] = end
    runs: dict[str, dict[str, object]] = {}
    for (job, digest), kept in sorted(ledger.runs.items(), key=_key):
        runs.setdefault(job.name, {})[digest] = entry_value(kept)
    return {
        "finished": compact_json(finished),
        "inventory": compact_json(inventory),
        "runs": compact_json(runs),
        "seen": compact_json(seen),
    }


def _key(entry: tuple[RunKey, RunEntry]) -> RunKey:
    return entry[0]


def decode_ledger(head: Body, config_maps: Mapping[ObjectRef, Body] | None = None) -> LedgerReading | None:
    """Read a ledger back; None for what does not have a ledger's name. `config_maps` are those its shards are among.

    Never raises: a damaged or missing part reads as empty. Its owner follows from its name, which can't be changed.
    """
    whose = names.ledger_owner(text(head, "metadata", "name"))
    if whose is None:
        return None
    cluster, owner = whose[0], ProjectName(whose[1])
    data = mapping(head, "data")
    shards = shards_of(head)
    parts = [_read(owner, data)] if shards == 1 else []
    damaged = list(parts[0].damaged) if parts else []
    if not shards:
        damaged.append("shards")
    for number, ref in enumerate(shard_refs(cluster, owner, shards), 1):
        part = _read(owner, mapping((config_maps or {}).get(ref, {}), "data"))
        parts.append(part)
        if part.damaged:
            damaged.append(f"{number} of {shards}")
    revision = data.get("revision")
    if not isinstance(revision, str):
        damaged.append("revision")
        revision = NO_REVISION
    ledger = Ledger(
        project=owner,
        revision=Revision(revision),
        content=text(data, "content"),
        inventory=frozenset(ref for part in parts for ref in part.ledger.inventory),
        seen=frozenset(key for part in parts for key in part.ledger.seen),
        finished={key: run for part in parts for key, run in part.ledger.finished.items()},
        runs={key: entry for part in parts for key, entry in part.ledger.runs.items()},
        keeps_runs=all(part.ledger.keeps_runs for part in parts),
        usage=_usage(data),
        removed=_removed(data),
    )
    return LedgerReading(ledger=ledger, damaged=tuple(damaged))


def _read(owner: ProjectName, data: Mapping[str, Any]) -> LedgerReading:
    """The entries of one object."""
    damaged = []
    inventory: frozenset[ObjectRef] = frozenset()
    seen: frozenset[RunKey] = frozenset()
    finished: Mapping[RunKey, FinishedRun] = {}
    runs: Mapping[RunKey, RunEntry] = {}
    try:
        inventory = frozenset(_inventory(_section(data, "inventory")))
    except _DAMAGE:
        damaged.append("inventory")
    try:
        seen = frozenset(_seen(owner, _section(data, "seen")))
    except _DAMAGE:
        damaged.append("seen")
    try:
        finished = {(run.job, run.digest): run for run in _finished(owner, _section(data, "finished"))}
    except _DAMAGE:
        damaged.append("finished")
    keeps_runs = "runs" in data
    try:
        runs = dict(_runs(owner, _section(data, "runs"))) if keeps_runs else {}
    except _DAMAGE:
        damaged.append("runs")
    read = Ledger(project=owner, inventory=inventory, seen=seen, finished=finished, runs=runs, keeps_runs=keeps_runs)
    return LedgerReading(ledger=read, damaged=tuple(damaged))


_DAMAGE = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What reading a part that is no JSON, or JSON of another shape, can raise below."""


def _section(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = json.loads(data[key])
    if not isinstance(value, dict):
        raise TypeError(key)
    return value


def _inventory(section: dict[str, Any]) -> Iterator[ObjectRef]:
    for kind, namespaces in section.items():
        api_version, name_of_kind = kind.split(" ")
        for namespace, objects in namespaces.items():
            for name in _texts(objects):
                yield ObjectRef(api_version, name_of_kind, namespace, name)


def _seen(project: ProjectName, section: dict[str, Any]) -> Iterator[RunKey]:
    for job, digests in section.items():
        for digest in _texts(digests):
            yield JobId(project, job), RunDigest(digest)


def _finished(project: ProjectName, section: dict[str, Any]) -> Iterator[FinishedRun]:
    for job, runs in section.items():
        for digest, end in runs.items():
            at_ms, state, starts = decode_instant(end["at"]), end["state"], end["starts"]
            if at_ms is None or not isinstance(state, str) or not is_amount(starts):
                raise ValueError(digest)
            yield FinishedRun(
                job=JobId(project, job), digest=RunDigest(digest), state=state, at_ms=at_ms, starts=starts
            )


def _runs(project: ProjectName, section: dict[str, Any]) -> Iterator[tuple[RunKey, RunEntry]]:
    for job, runs in section.items():
        for digest, value in runs.items():
            yield (JobId(project, job), RunDigest(digest)), entry_of(value)


def _texts(value: object) -> Iterator[str]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    for item in value:
        if not isinstance(item, str):
            raise TypeError("not a text")
        yield item
