"""gpuctl's own facts as JSON values and as annotations, and back. One text for one value: equal facts cost no write.

Annotations are for people: where a ledger can be read, nothing is decided by them. Decoding never raises: what a person
damaged reads as absent, and the next decision writes it anew.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeGuard

from gpuctl.k8s import names
from gpuctl.k8s.bounds import MOST_AMOUNT, MOST_WORKERS, is_amount, is_short, whole_number
from gpuctl.k8s.timestamps import format_timestamp, parse_timestamp
from gpuctl.model.decision import NOT_YET, Placement, Reason, RunRecord, WorkerPlacement
from gpuctl.model.declared import Allowance
from gpuctl.model.ids import DomainName, JobId, NodeName
from gpuctl.model.state import Charge
from gpuctl.model.units import MOST_NODE_GPUS, Instant

_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
OF_A_PLACE = frozenset({"affinity", "nodeSelector", "tolerations", "schedulingGates"})
"""What the API server lets change in a suspended Job's pod template, beside labels and annotations."""
_MANY = 4096
"""Texts that are remembered: most jobs wait for the same reason, and many ask for the same."""
_MOST_PARAMETERS = 32
_PACKED = "zlib:"
_LONGEST_PLAIN = 32 * 1024
"""The longest placement that is written as people can read it: of some 500 workers."""
_SHORTEST_WORKER = len('{"node":"n","gpus":[]},')
_LONGEST_UNPACKED = 8 * 1024 * 1024
"""Of 10,000 workers, the most that a job may have, with eight GPUs each by their UUIDs."""
_IN_ORDER = json.JSONEncoder(separators=(",", ":"))


def compact_json(value: object) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return _SORTED.encode(value)


def encode_values(values: Mapping[str, str]) -> str:
    """`{"DEPTH":"4","LR":"0.1"}`."""
    return compact_json(dict(values))


def decode_values(text: object) -> Mapping[str, str]:
    """The variables of an annotation's text; none where it is damaged."""
    found = _json(text)
    if not isinstance(found, dict) or len(found) > _MOST_PARAMETERS:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def encode_placement(placement: Placement) -> str:
    """`[{"node":"dgx1-2","gpus":[0,1]}]`, a worker each in worker order; with `"uuids"` where they are known.

    A gang of many workers has it packed, `zlib:` and base64: an object has room for 256 KiB of annotations, which 3,000
    workers of whole nodes fill, and each pod of the gang has it, too.
    """
    text = _IN_ORDER.encode([_encode_worker(worker) for worker in placement.workers])
    if len(text) <= _LONGEST_PLAIN:
        return text
    return _PACKED + b64encode(zlib.compress(text.encode())).decode()


def placement_value(placement: Placement) -> object:
    """A placement as a JSON value: the list of its workers, or packed the text of the annotation."""
    if len(placement.workers) * _SHORTEST_WORKER > _LONGEST_PLAIN:
        text = encode_placement(placement)
        if text.startswith(_PACKED):
            return text
    return [_encode_worker(worker) for worker in placement.workers]


def _encode_worker(worker: WorkerPlacement) -> dict[str, object]:
    known: dict[str, object] = {"node": worker.node, "gpus": worker.gpus}
    return {**known, "uuids": worker.uuids} if worker.uuids else known


def decode_placement(text: object) -> Placement | None:
    """The placement of an annotation's text, or None."""
    return placement_of(text if isinstance(text, str) and text.startswith(_PACKED) else _json(text))


def placement_of(workers: object) -> Placement | None:
    """The placement of a JSON value, or None."""
    if isinstance(workers, str):
        workers = _json(_unpacked(workers))
    if not isinstance(workers, list) or not 0 < len(workers) <= MOST_WORKERS:
        return None
    placed = [_decode_worker(worker) for worker in workers]
    known = tuple(worker for worker in placed if worker is not None)
    return Placement(workers=known) if len(known) == len(placed) else None


def _unpacked(text: str) -> str | None:
    """The JSON in a packed text; None for what is none, or is longer than that of any gang."""
    unpack = zlib.decompressobj()
    try:
        found = unpack.decompress(b64decode(text.removeprefix(_PACKED), validate=True), _LONGEST_UNPACKED)
        return found.decode() if unpack.eof else None
    except (ValueError, zlib.error):
        return None


def _decode_worker(worker: object) -> WorkerPlacement | None:
    if not isinstance(worker, dict):
        return None
    node, gpus = worker.get("node"), worker.get("gpus", [])
    uuids = worker.get("uuids", [])
    if not is_short(node) or not all(
        isinstance(listed, list) and len(listed) <= MOST_NODE_GPUS for listed in (gpus, uuids)
    ):
        return None
    if not all(is_amount(gpu, MOST_NODE_GPUS - 1) for gpu in gpus) or not all(map(is_short, uuids)):
        return None
    return WorkerPlacement(node=NodeName(node), gpus=tuple(gpus), uuids=tuple(uuids))


@lru_cache(maxsize=_MANY)
def encode_reason(reason: Reason) -> str:
    """`{"code":"GPU5003","params":{…}}`."""
    return compact_json(reason_value(reason))


def reason_value(reason: Reason) -> dict[str, object]:
    """A reason as a JSON value."""
    return {"code": reason.code, "params": dict(reason.params)}


def decode_reason(text: object) -> Reason | None:
    """The reason of an annotation's text, or None."""
    return reason_of(_json(text))


def reason_of(value: object) -> Reason | None:
    """The reason of a JSON value with its parameters in the order of their names, or None."""
    if not isinstance(value, dict) or not is_short(value.get("code")):
        return None
    params = value.get("params", {})
    if not isinstance(params, dict) or len(params) > _MOST_PARAMETERS:
        return None
    known = {key: param for key, param in params.items() if is_short(param) or _is_integer(param)}
    return Reason(code=value["code"], params=tuple(sorted(known.items())))


def _is_integer(value: object) -> TypeGuard[int]:
    return type(value) is int and -MOST_AMOUNT <= value <= MOST_AMOUNT


@lru_cache(maxsize=_MANY)
def encode_charge(charge: Charge) -> str:
    """`{"cpuMilli":4000,"gpuMilli":500,"memBytes":1073741824}`."""
    return compact_json(charge_value(charge))


def charge_value(charge: Charge) -> dict[str, object]:
    """A charge as a JSON value."""
    return {"gpuMilli": charge.gpu_milli, "cpuMilli": charge.cpu_milli, "memBytes": charge.mem_bytes}


def decode_charge(text: object) -> Charge | None:
    """The charge of an annotation's text, or None."""
    return charge_of(_json(text))


def charge_of(value: object) -> Charge | None:
    """The charge of a JSON value, or None."""
    if not isinstance(value, dict):
        return None
    gpu_milli, cpu_milli, mem_bytes = (value.get(key) for key in ("gpuMilli", "cpuMilli", "memBytes"))
    if not (is_amount(gpu_milli) and is_amount(cpu_milli) and is_amount(mem_bytes)):
        return None
    return Charge(gpu_milli=gpu_milli, cpu_milli=cpu_milli, mem_bytes=mem_bytes)


def encode_allowances(allowances: Mapping[DomainName, Allowance]) -> str:
    """`{"*":{"limitMilli":8000,"quotaMilli":4000,"weight":4}}`, a domain each; without a limit there is no such key."""
    return compact_json({
        domain: {
            "quotaMilli": allowance.quota_milli,
            "weight": allowance.weight,
            **({} if allowance.limit_milli is None else {"limitMilli": allowance.limit_milli}),
        }
        for domain, allowance in allowances.items()
    })


def decode_allowances(text: object) -> Mapping[DomainName, Allowance] | None:
    """The allowances of an annotation's text, or None."""
    value = _json(text)
    if not isinstance(value, dict):
        return None
    found = {DomainName(domain): _decode_allowance(entry) for domain, entry in sorted(value.items())}
    known = {domain: allowance for domain, allowance in found.items() if allowance is not None}
    return known if len(known) == len(found) else None


def _decode_allowance(entry: object) -> Allowance | None:
    if not isinstance(entry, dict):
        return None
    quota, limit, weight = (entry.get(key) for key in ("quotaMilli", "limitMilli", "weight"))
    if not (is_amount(quota) and is_amount(weight) and (limit is None or is_amount(limit))):
        return None
    return Allowance(quota_milli=quota, limit_milli=limit, weight=weight)


def template_digest(template: Mapping[str, Any]) -> str:
    """Of a Job's pod template, without what may change while the Job waits: labels, annotations, where it is placed."""
    spec = {key: value for key, value in template.get("spec", {}).items() if key not in OF_A_PLACE}
    return sha256(compact_json(spec).encode()).hexdigest()[:8]


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Of the spec of an object of which nothing may change."""
    return sha256(compact_json(spec).encode()).hexdigest()[:8]


def encode_record(record: RunRecord) -> dict[str, str]:
    """The annotations that remember a run from cycle to cycle."""
    facts = {
        names.QUEUED_AT_ANNOTATION: format_timestamp(record.queued_at_ms),
        names.RAN_ANNOTATION: str(record.ran_ms),
        names.STARTS_ANNOTATION: str(record.starts),
    }
    if record.paused_for is not None:
        facts[names.PAUSED_FOR_ANNOTATION] = str(record.paused_for)
    if record.failed_starts:
        facts[names.FAILED_STARTS_ANNOTATION] = str(record.failed_starts)
    if record.starting_ms:
        facts[names.STARTING_ANNOTATION] = str(record.starting_ms)
    return facts


def decode_record(annotations: Mapping[str, Any], created_at_ms: Instant) -> RunRecord:
    """What the annotations remember; a run without a readable queue time waits since its object was made."""
    queued_at_ms = decode_instant(annotations.get(names.QUEUED_AT_ANNOTATION))
    starting = annotations.get(names.STARTING_ANNOTATION)
    return RunRecord(
        queued_at_ms=created_at_ms if queued_at_ms is None else queued_at_ms,
        starts=_count(annotations.get(names.STARTS_ANNOTATION)),
        ran_ms=_count(annotations.get(names.RAN_ANNOTATION)),
        paused_for=decode_job(annotations.get(names.PAUSED_FOR_ANNOTATION)),
        failed_starts=_count(annotations.get(names.FAILED_STARTS_ANNOTATION)),
        starting_ms=NOT_YET if starting == str(NOT_YET) else _count(starting),
    )


def decode_instant(text: object) -> Instant | None:
    """The time of an annotation's text, or None."""
    try:
        return parse_timestamp(text) if isinstance(text, str) else None
    except ValueError:
        return None


def decode_job(text: object) -> JobId | None:
    """The job of a text `project/name`, or None."""
    try:
        return JobId.parse(text) if is_short(text) else None
    except ValueError:
        return None


def _count(text: object) -> int:
    return whole_number(text) or 0


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
