"""The verb that imports what another system's cluster holds: what compiles is written, the rest is reported."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuctl.app.beginning import NewRepository
from gpuctl.app.editing import WorkingTree, added_errors
from gpuctl.app.editing_ports import not_edited
from gpuctl.compile import CompileCache, compile_tree
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.declared import Declared
from gpuctl.model.source import SourceFile, exceeded
from gpuctl.scaffold.foreign import Found, Left, Place, Thing, made

_OF_ALL = frozenset({"GPU3009", "GPU3010"})
"""Mistakes that belong to no single declaration: the quotas add up to more than the capacity."""
_POOL_LABEL = "gpuctl.dev/pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import: files by path, what each declares, what is left out, and errors that prevent all
    writing."""

    files: Mapping[str, bytes]
    things: Mapping[str, Thing]
    left: tuple[Left, ...]
    errors: tuple[Diagnostic, ...] = ()


def place_in(working: WorkingTree) -> Place:
    """The names in the cluster's declarations that imported declarations may refer to."""
    specs = [document.data.get("spec") for _, document in working.documents("Cluster")]
    spec = next((each for each in specs if isinstance(each, dict)), {})
    listed = spec.get("nodePools")
    pools: dict[str, Mapping[str, str]] = {}
    for pool in listed if isinstance(listed, list) else []:
        name = pool.get("name") if isinstance(pool, dict) else None
        if isinstance(name, str):
            selector = pool.get("selector")
            labels = selector.get("matchLabels") if isinstance(selector, dict) else None
            pools[name] = labels if isinstance(labels, dict) else {_POOL_LABEL: name}
    quotas = [document.data["spec"].get("quota") for kind in ("Project", "Department")
              for _, document in working.documents(kind) if isinstance(document.data.get("spec"), dict)]  # fmt: skip
    forms = [isinstance(quota, dict) for quota in quotas if quota is not None]
    prefix = spec.get("namespacePrefix", "gpu-")
    place = Place(pools=pools, by_pool=forms[0] if forms else None, prefix=prefix if isinstance(prefix, str) else "")
    return _with_rights(place, compile_tree(working.tree).declared)


def _with_rights(place: Place, declared: Declared | None) -> Place:
    """The place with what jobs may use there: the defaults, where the declarations have a mistake."""
    if declared is None:
        return place
    cluster = declared.cluster
    return replace(
        place,
        nfs=tuple((server, path) for server, _, path in (each.partition(":") for each in cluster.security.nfs)),
        csi_drivers=frozenset(cluster.security.csi_drivers),
        grace_s=cluster.scheduling.pause_grace_ms // 1000,
        tolerated=frozenset(each.key for pool in cluster.pools for each in pool.tolerations),
    )


def imported(working: WorkingTree, found: Found) -> Imported:
    """Declare what is new, without what the compiler refuses. Cost: a few compilations of the cluster."""
    tree, cache = working.tree, CompileCache()
    files, things, left = made(found, tree.cluster_dir)
    left = [*found.left, *left]
    for path, thing in list(things.items()):
        there = working.has(thing.target)
        if there or path in tree.files:
            left.append(
                Left(what=str(thing.target), why="it is declared already" if there else f"{path} is there already")
            )
            del files[path], things[path]
    if bound := exceeded(files=len(tree.files) + len(files), size_bytes=sum(map(len, files.values()))):
        raise not_edited("GPU6142", bound=bound)
    before = compile_tree(tree, cache).diagnostics
    while True:
        after = compile_tree(replace(tree, files={**tree.files, **_sources(files)}), cache)
        added = added_errors(before, after.diagnostics)
        wrong = {found.span.file: found for found in reversed(added) if found.code not in _OF_ALL}
        dropped = [path for path in files if path in wrong]
        for path in dropped:
            found_wrong = wrong[path]
            left.append(Left(what=str(things[path].target), why=f"{found_wrong.code}: {found_wrong.message}"))
            del files[path], things[path]
        if not dropped:
            return Imported(files=files, things=things, left=tuple(left), errors=added)


def write(found: Imported, cluster_dir: str, place: NewRepository) -> None:
    """Write all files or none. `place`: the cluster's folder. Raises NotEdited: GPU6108, GPU6404."""
    files = {posixpath.relpath(path, cluster_dir): content for path, content in found.files.items()}
    taken = place.taken(files)
    if taken:
        raise not_edited("GPU6108", path=taken[0], why="something is there already")
    place.create(files)


def _sources(files: Mapping[str, bytes]) -> dict[str, SourceFile]:
    return {path: SourceFile(content=content) for path, content in files.items()}
