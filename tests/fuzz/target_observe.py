"""Observing: any objects become a state of the cluster, whatever is in them, and the same one along every way."""

from __future__ import annotations

from json import dumps

from gpuctl.app.kept import Keep
from gpuctl.k8s import names
from gpuctl.k8s.bounds import MOST_AMOUNT
from gpuctl.model.state import ClusterState, RawObjects
from gpuctl.model.units import MOST_NODE_GPUS
from gpuctl.observe import observe
from gpuctl.observe.cache import ObserveCache

from .harness import JSON, Target, corpus
from .town import DECLARED, objects_of

_BEFORE = objects_of(corpus("observe")["all"])
_KEEP = Keep()


def check(data: bytes) -> None:
    """Observe the objects at once, after others, cut down, and as a person who sees all clusters."""
    raw, tenancy = objects_of(data), DECLARED.tenancy
    state = observe(raw, tenancy)
    is_bounded(state)
    cache = ObserveCache()
    observe(_before(raw), tenancy, cache)
    assert observe(raw, tenancy, cache) == state
    kept = observe(RawObjects(objects={ref: _KEEP(body) for ref, body in raw.objects.items()}), tenancy)
    is_bounded(kept)
    assert {run.job for run in kept.runs} == {run.job for run in state.runs}
    is_bounded(observe(raw))


def _before(raw: RawObjects) -> RawObjects:
    """What was observed before, without objects that only Python takes for the same as now: `1 == True`.

    What is remembered is of equal objects. The fields of an API server have types, so there these are equal.
    """
    then = _BEFORE.objects
    twins = (ref for ref, body in raw.objects.items() if body == then.get(ref) and dumps(body) != dumps(then[ref]))
    return RawObjects(objects={ref: then[ref] for ref in then.keys() - set(twins)})


def is_bounded(state: ClusterState) -> None:
    """No amount of it is one that can't be added up, written down, or counted up to."""
    for node in state.nodes:
        assert 0 <= node.gpus == len(node.foreign_gpu_milli) <= MOST_NODE_GPUS
        assert all(amount >= 0 for amount in node.foreign_gpu_milli)
        assert max(node.cpu_milli, node.mem_bytes) <= 1000 * MOST_AMOUNT
    assert len({(run.job, run.digest) for run in state.runs}) == len(state.runs)
    for run in state.runs:
        assert 0 <= run.starts <= MOST_AMOUNT
        assert 0 <= run.queued_at_ms <= MOST_AMOUNT


TARGET = Target(
    check=check,
    form=JSON,
    words=tuple(
        value.encode()
        for name, value in sorted(vars(names).items())
        if name.endswith(("_LABEL", "_ANNOTATION", "_RESOURCE"))
    ),
)
