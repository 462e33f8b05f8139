"""Volumes of a Kubernetes pod as a job's: those that its own container mounts, and what others see of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuctl.compile.amounts import WrongValue, absolute_path
from gpuctl.compile.folders import is_within
from gpuctl.edit import Value
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.values import Place, Record, given

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a path in containers
_USUAL_SIZE = "10Gi"


class Mounts:
    """The volumes of a job as they are found; `volumes`: in the order of their mounts."""

    def __init__(self, pod: Record, place: Place, unsaid: list[str]) -> None:
        self._origins = {Record(each).text("name"): each for each in pod.list_of("volumes")}
        self._place = place
        self._unsaid = unsaid
        self._paths: dict[str, str] = {}
        self.volumes: list[Value] = []
        self.large_shm: bool | None = None

    def of_job(self, container: Record) -> None:
        """Take over the mounts of the job's own container; a volume in memory at /dev/shm becomes `large_shm`."""
        for mount, name, path in _mounts(container):
            in_memory = Record(self._origins.get(name)).below("emptyDir").text("medium") == "Memory"
            if in_memory and path == SHARED_MEMORY:
                self.large_shm = True
            elif (
                mount.text("subPath") or mount.text("subPathExpr") or not self._add(name, path, mount.take("readOnly"))
            ):
                self._unsaid.append(f"volume {name} at {path}")

    def of_other(self, container: Record, called: str) -> list[Value]:
        """The mounts of another container. A volume that only it mounts is also mounted into the job's own, and
        reported."""
        found: list[Value] = []
        for mount, name, path in _mounts(container):
            is_part = _is_part(mount)
            if not is_part and name not in self._paths:
                at = path if path not in self._paths.values() else f"/volumes/{name}"
                if self._add(name, at, None):
                    self._unsaid.append(f"volume {name} is mounted into the job's own container too, at {at}")
            if is_part or name not in self._paths:
                self._unsaid.append(f"volume {name} at {path} of container {called}")
                continue
            volume = self._paths[name]
            own = path if path != volume else None
            found.append(
                given({"volume": volume, "mountPath": own, "readOnly": mount.take("readOnly") is True or None})
            )
        return found

    def _add(self, name: str, path: str, read_only: Any) -> bool:
        source = self._source(name)
        if not source:
            return False
        self.volumes.append(given({**source, "mountPath": path, "readOnly": read_only is True or None}))
        self._paths.setdefault(name, path)
        return True

    def _source(self, name: str) -> dict[str, Value]:
        """The source of a volume; empty if no field can declare it, or the cluster does not allow it."""
        origin = Record(self._origins.get(name))
        claim, nfs = origin.below("persistentVolumeClaim").text("claimName"), origin.below("nfs")
        folder, csi = origin.below("emptyDir"), origin.below("csi")
        if claim:
            return {"claim": claim}
        if isinstance(origin.take("emptyDir"), dict) and not folder.text("medium"):
            size = amounts.memory(folder.take("sizeLimit"))
            if size is None:
                self._unsaid.append(f"that volume {name} has no limit: it gets {_USUAL_SIZE}")
            return {"emptyDir": {"size": size or _USUAL_SIZE}}
        if nfs.text("path"):
            server, path = nfs.text("server"), nfs.text("path")
            allowed = any(server == host and _is_below(path, top) for host, top in self._place.nfs)
            return {"nfs": {"server": server, "path": path}} if allowed else {}
        if csi.text("driver"):
            return _csi(csi) if csi.text("driver") in self._place.csi_drivers else {}
        if isinstance(origin.take("projected"), dict):
            sources = [_projected(Record(each)) for each in origin.below("projected").list_of("sources")]
            return {"projected": {"sources": [*sources]}} if sources and all(sources) else {}
        return _of_keys(origin)


def _mounts(container: Record) -> Iterator[tuple[Record, str, str]]:
    for entry in container.list_of("volumeMounts"):
        mount = Record(entry)
        yield mount, mount.text("name"), mount.text("mountPath")


def _is_part(mount: Record) -> bool:
    """Whether only a folder of the volume is mounted, which can't be declared."""
    return bool(mount.text("subPath") or mount.text("subPathExpr"))


def _is_below(path: str, folder: str) -> bool:
    try:
        return is_within(absolute_path(path), absolute_path(folder))
    except WrongValue:
        return False


def _of_keys(origin: Record) -> dict[str, Value]:
    """A Secret, a ConfigMap or pod facts: by itself, or, if some keys are chosen, as a projected volume."""
    named: Mapping[str, Any] = {
        "secret": {**_data(origin, "secret"), "name": origin.below("secret").text("secretName")},
        "configMap": _data(origin, "configMap"),
        "downwardAPI": _data(origin, "downwardAPI"),
    }
    for field, data in named.items():
        source = _projected(Record({field: data})) if data.get("name") or data.get("items") else {}
        if source.get("items") or source.get("downwardAPI"):
            return {"projected": {"sources": [source]}}
        if source:
            return {field: source[field]}
    return {}


def _data(origin: Record, field: str) -> dict[str, Any]:
    data = origin.take(field)
    return data if isinstance(data, dict) else {}


def _projected(source: Record) -> dict[str, Value]:
    """A source of a projected volume; empty for one that can't be declared, such as a service account's token."""
    facts = _items(source.below("downwardAPI").list_of("items"), "path", ("fieldRef", "fieldPath"))
    for field in ("secret", "configMap"):
        record = source.below(field)
        name, keys = record.text("name"), record.list_of("items")
        if name:
            return given({field: name, "items": _items(keys, "key", ("path",))})
    return given({"downwardAPI": facts})


def _items(entries: Iterable[Any], key: str, value: tuple[str, ...]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for entry in entries:
        record = Record(entry)
        *above, last = value
        below = record.below(*above) if above else record
        if record.text(key) and below.text(last):
            found[record.text(key)] = below.text(last)
    return found


def _csi(csi: Record) -> dict[str, Value]:
    told = csi.take("volumeAttributes")
    attributes: dict[str, Value] = {
        str(name): each for name, each in (told if isinstance(told, dict) else {}).items() if isinstance(each, str)
    }
    secret = csi.below("nodePublishSecretRef").text("name")
    return {"csi": given({
        "driver": csi.text("driver"), "attributes": attributes, "fsType": csi.text("fsType"), "secret": secret,
    })}  # fmt: skip
