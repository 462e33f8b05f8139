"""The ways in which another engine may decide differently from gpuctl's own, whose decisions a plan predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.declared import Declared
from gpuctl.targets.unsaid import Engine, unsaid

_EVERYWHERE = (
    "its jobs are ordered by the second at which they were made, not by what is declared",
    "which jobs make way is its own choice, and GPUs that it frees are kept for no job",
)
_OF: dict[Engine, Sequence[str]] = {
    Engine.KUEUE: (
        "it admits what has quota, whether or not a node has room",
        "a lower quota stops no job that runs",
    ),
    Engine.KAI: (
        "nothing is taken from a run younger than minRuntime, even for a project within its quota",
        "all nodes of one scheduler are one pool to it",
    ),
}


def differences(declared: Declared, engine: Engine) -> Iterator[Diagnostic]:
    """A warning for each way in which the engine decides differently for any declarations, at the cluster's
    declaration."""
    for how in (*_EVERYWHERE, *_OF[engine]):
        yield unsaid("GPU6154", declared.cluster.span, engine, how=how)
