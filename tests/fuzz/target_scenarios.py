"""The reader of scenarios: any file becomes a scenario whose names are checked, or diagnostics. It is not played."""

from __future__ import annotations

from gpuctl.app.play import Sandbox
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.simulation import simulate_file
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.units import Instant

from .harness import YAML, Target, corpus
from .target_compile import told_well

_CLUSTER = SourceTree(cluster_dir="c", files={"c/c.yaml": SourceFile(content=corpus("compile")["small"])})


class _Right(Exception):
    """The scenario could be played."""


def _tree(name: str) -> SourceTree:
    if name != "cluster":
        raise SourceUnavailable("GPU3904", "no such file")
    return _CLUSTER


def _no_world(at_ms: Instant) -> Sandbox:
    raise _Right(at_ms)


def check(data: bytes) -> None:
    """Read the scenario, and compile what it declares after each event."""
    try:
        simulated = simulate_file("s.yaml", data, _tree, _no_world)
    except _Right:
        return
    assert simulated.diagnostics
    told_well(simulated.diagnostics)


TARGET = Target(
    check=check,
    form=YAML,
    words=(b"declarations: [cluster]\n", b"when:\n", b"- at: 1m\n", b"  apply: [", b"  delete: [team-a/j]\n",
           b"given: {", b"expect:\n", b"until: ", b"team-a/j", b"-36501d", b"999999999d",
           b"placement: [{node: d1, gpus: [0, 0]}]"),
)  # fmt: skip
