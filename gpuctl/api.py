"""The supported surface for programs: compile, validate, schedule, render, plan and simulate, from values to values.

Nothing here reads a file, a repository, a clock or a cluster, and nothing is written: files are given as text by path,
live objects as the JSON that `kubectl get -o json` prints, the time as milliseconds since 1970. Equal arguments give
equal results, byte for byte. docs/api.md has an example of each function, which a test runs, and states the promise:
the names in `__all__` with their arguments, and the fields of their results that the page names. Every other module of
gpuctl is private, whatever its name, and may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleReport, foreseen
from gpuctl.app.effects import objects_of
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.simulation import Simulated, simulate_file
from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.change import Plan
from gpuctl.model.decision import Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.manifest import Manifests
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.render import render as render_decided

__all__ = [
    "Compiled",
    "Declared",
    "Diagnostic",
    "Manifests",
    "Plan",
    "Schedule",
    "Simulated",
    "compile",
    "declared_nodes",
    "plan",
    "render",
    "schedule",
    "simulate",
    "validate",
]

Files = Mapping[str, str | bytes]
"""The content of YAML files by path; paths are relative to one folder, with `/`."""
Objects = Iterable[Mapping[str, Any]]
"""Live Kubernetes objects as decoded JSON, each with apiVersion, kind and metadata, in any order."""


def compile(files: Files, folder: str = ".") -> Compiled:  # noqa: A001 - the stage has this name everywhere
    """Compile the declarations of one cluster, with the policies beside them.

    `files`: those of the cluster's folder and of `policies/`; `folder`: the cluster's folder in the same terms.
    The result's `declared` is None exactly when one of its `diagnostics` is an error. Never raises for the content of
    files. Cost: linear in their bytes, some ten milliseconds for a hundred jobs.
    """
    return compile_tree(_tree(files, folder))


def validate(files: Files, folder: str = ".") -> tuple[Diagnostic, ...]:
    """Every mistake in the declarations of one cluster, in reading order; warnings too, so look at `severity`.

    Arguments and cost: those of `compile`.

    >>> [(found.code, found.severity.value) for found in validate({"train.yaml": "kind: Jobb"})]
    [('GPU3001', 'error'), ('GPU2003', 'error')]
    """
    return compile(files, folder).diagnostics


def declared_nodes(declared: Declared) -> tuple[Mapping[str, Any], ...]:
    """The nodes of the declared pools, ready and empty, with the device classes and slices that belong to them.

    They stand for live objects if there is no cluster.
    """
    from gpuctl import wiring  # noqa: PLC0415 - it imports the adapters, which takes a while

    return tuple(wiring.blueprint(declared.cluster.pools))


def schedule(declared: Declared, objects: Objects, now_ms: int) -> Schedule:
    """The next decision about every declared job, as the controller would make it on these live objects at this time.

    `objects`: at least the nodes, and the objects that gpuctl has made. `now_ms`: milliseconds since 1970. Never raises
    for the content of objects: one that can't be read is left alone. Cost: a whole cycle, which plans as well.
    """
    return _cycle(declared, objects, now_ms).schedule


def render(declared: Declared, decided: Schedule | None = None) -> Manifests:
    """The Kubernetes objects that are wanted, sorted, the same bytes every time; each `body` is what is applied.

    With a schedule, they contain its decisions; without one, every job is suspended, as when it is created.
    """
    return waiting_manifests(declared) if decided is None else render_decided(declared, decided)


def plan(declared: Declared, objects: Objects, now_ms: int, confirmations: Iterable[str] = ()) -> Plan:
    """The writes of the controller's next cycle on these live objects, in order, and the refusals of its guards.

    Carrying a change out takes several cycles: a run is created in one and released in the next.
    `confirmations`: the values of the commit's `Gpuctl-Confirm` trailers. Other arguments and cost: as `schedule`.
    """
    return _cycle(declared, objects, now_ms, frozenset(confirmations)).plan


def simulate(scenario: str | bytes, folders: Mapping[str, Files] | None = None) -> Simulated:
    """Play a scenario in virtual time, through the ordinary compiler and reconciler, on the embedded cluster.

    `folders`: the files of each folder that the scenario's `declarations` name, by that name; paths relative to it.
    The result's `report` is None if the scenario has mistakes, which are in `diagnostics`; `report.ok` says whether
    everything that the scenario expects came true. Cost: a few cycles for each event, milliseconds each for a hundred
    jobs.
    """
    from gpuctl import wiring  # noqa: PLC0415 - it imports the adapters, which takes a while

    known = folders or {}

    def read(name: str) -> SourceTree:
        if name not in known:
            raise SourceUnavailable("GPU3904", "it is not among the given folders")
        return _tree({f"{name}/{path}": content for path, content in known[name].items()}, name)

    return simulate_file("scenario.yaml", _bytes(scenario), read, wiring.sandbox)


def _tree(files: Files, folder: str) -> SourceTree:
    return SourceTree(
        cluster_dir=folder, files={path: SourceFile(content=_bytes(files[path])) for path in sorted(files)}
    )


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _cycle(
    declared: Declared, objects: Objects, now_ms: int, confirmations: frozenset[str] = frozenset()
) -> CycleReport:
    raw = objects_of({**body} for body in objects)
    return foreseen(declared, raw, now_ms, CycleCaches(), {}, confirmations)
