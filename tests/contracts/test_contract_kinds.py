"""Objects of other controllers' kinds, built in and declared: what gpuctl writes of them is taken, kept and found.

A real server has the kinds' own definitions here, and none of their controllers; what those do is in tests/jobset,
tests/workloads/test_declared_life.py and, as each row says it, in tests/reconcile/test_other_kinds.py.
"""

from __future__ import annotations

import pytest
from labs import Lab, body, lab
from workloads.declarations import EVERY_KIND, ROWS, let_go, rendered

from gpuctl.app.ports import Conflict, Gone
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import ref_of, uid, with_value
from gpuctl.k8s.suspension import is_let_go, is_stopped
from gpuctl.k8s.workload_kinds import end_of
from gpuctl.model.state import Body
from gpuctl.plan import drift


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind[1])
def test_it_is_taken_and_kept_as_it_is_and_watched_and_deleted_as_what_it_is(lab: Lab, kind: Kind) -> None:
    """One test a kind, for a real server takes longer to be furnished than to answer."""
    lab.serve(kind)
    lab.apply(body(kinds.NAMESPACE, "gpu-a", namespace=None))
    lab.namespace = "gpu-a"
    version = lab.cluster.list(kind).resource_version
    takes(lab, kind)
    name = ref_of(rendered(kind)).name
    assert [each["metadata"]["name"] for each in come_since(lab, kind, version)] == [name]
    keeps(lab, kind, name)
    first = uid(lab.there(kind, name))
    lab.delete(kind, name)
    lab.eventually(lambda: lab.get(kind, name) is None)
    assert uid(lab.apply(rendered(kind))) != first


def come_since(lab: Lab, kind: Kind, version: str) -> list[Body]:
    """The objects that came after a version; all, where the server has begun to serve the kind anew meanwhile, as it
    does while a definition is new, and has forgotten the version.
    """
    try:
        return [event.body for event in lab.cluster.watch(kind, version, 0) if event.type == "ADDED"]
    except Gone:
        return [*lab.cluster.list(kind).items]


def takes(lab: Lab, kind: Kind) -> None:
    """Stopped, let go and stopped again, each as it is written."""
    row, waiting, running = ROWS[kind], rendered(kind), let_go(kind)
    for wanted in (waiting, running, waiting):
        stored = lab.apply(wanted)
        assert drift(wanted, stored) == ()
        assert is_let_go(stored, ROWS) is (wanted is not waiting)
        assert end_of(row, stored) is None
    lab.eventually(lambda: is_stopped(lab.there(kind, ref_of(waiting).name), ROWS))


def keeps(lab: Lab, kind: Kind, name: str) -> None:
    """A hand that lets it go is drift in one field, and an apply stops it again."""
    stops, waiting = ROWS[kind].suspension, rendered(kind)

    def edited() -> bool:
        try:
            lab.edit(with_value(lab.there(kind, name), stops.field, 1 if stops.is_count else False), "somebody")
        except Conflict:  # its controller wrote it in between
            return False
        return True

    lab.eventually(edited)
    assert drift(waiting, lab.there(kind, name)) == (".".join(stops.field),)
    assert not is_let_go(lab.apply(waiting), ROWS)
