from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from workbench import Workbench, example, on, only, without_project

from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Forbidden, ObjectList
from gpuctl.k8s import names
from gpuctl.k8s.kinds import CLAIM, Kind
from gpuctl.k8s.objects import labels_of, ref_of
from gpuctl.model.change import Action, Plan
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import Body
from gpuctl.plan import Stage

A1 = "team-a/a-1-g"
CLAIMING = """
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: a-9-data, project: team-a}
spec: {image: x, gpus: 1, volumes: [{newClaim: {size: 1Gi}, mountPath: /data}]}
"""


def deleted(plan: Plan) -> list[tuple[str, str]]:
    return [(c.ref.kind, c.ref.name) for c in plan.changes if c.action is Action.DELETE]


def confirmations(plan: Plan) -> dict[str, str]:
    """What lifts each refusal, by its code."""
    return {each.code: each.help.rpartition("Gpuctl-Confirm: ")[2].strip("`") for each in plan.refusals}


def confirmation(plan: Plan) -> str:
    ((_, digest),) = confirmations(plan).items()
    return digest


def test_a_job_that_is_no_longer_declared_is_deleted_and_leaves_the_books() -> None:
    bench = Workbench(only(example(), A1, "team-a/a-2-gg"))
    bench.run(A1, on("dgx1-1", 0))
    bench.declared = only(bench.declared, "team-a/a-2-gg")
    bench.decisions = {}
    assert {kind for kind, _ in deleted(bench.plan())} == {"Job", "ResourceClaimTemplate"}
    assert {c.stage for c in bench.plan().changes if c.action is Action.DELETE} == {Stage.PRUNE}
    bench.converge()
    bench.pass_ms(60_000)
    bench.converge()
    ledger = bench.state().ledgers[ProjectName("team-a")]
    assert {str(job) for job, _ in ledger.seen} == {"team-a/a-2-gg"}
    assert not [ref for ref in ledger.inventory if ref.name.startswith("a-1-g")]


def test_a_copy_under_a_runs_labels_is_not_recorded_as_the_run() -> None:
    """Recorded as seen, the run would never start after a crash right behind the ledger's write."""
    whole = only(example(), A1, "team-a/a-2-gg")
    bench = Workbench(whole)
    bench.converge()
    ((_, body),) = bench.live("Job", "a-1-g")
    bench.declared = only(whole, "team-a/a-2-gg")
    bench.converge()
    meta = {"name": "copy", "namespace": "gpu-team-a", "labels": body["metadata"]["labels"]}
    bench.cluster.apply({**{key: body[key] for key in ("apiVersion", "kind", "spec")}, "metadata": meta})
    bench.declared = whole
    (ledger,) = [c for c in bench.plan().changes if c.stage is Stage.LEDGER]
    assert ledger.body is not None
    assert "a-1-g" in ledger.body["data"]["inventory"]
    assert "a-1-g" not in ledger.body["data"]["seen"]


def test_a_removed_idle_project_goes_bottom_up_and_its_ledger_last() -> None:
    bench = Workbench(only(example(), A1, "team-b/b-3-g"))
    bench.converge()
    bench.declared = without_project(bench.declared, "team-b")
    first = deleted(bench.plan())
    assert ("Namespace", "gpu-team-b") not in first
    assert {kind for kind, _ in first} == {"Job", "ResourceQuota"}
    for _ in range(6):
        bench.converge()
        bench.pass_ms(10_000)
    assert [ref for ref in bench.state().live if "team-b" in str(ref)] == []
    assert ProjectName("team-b") not in bench.state().ledgers
    assert ProjectName("team-a") in bench.state().ledgers


def test_a_project_with_running_jobs_is_left_alone_until_that_is_confirmed() -> None:
    bench = Workbench(only(example(), A1, "team-b/b-3-g"))
    bench.run("team-b/b-3-g", on("dgx1-1", 0))
    bench.declared = without_project(bench.declared, "team-b")
    bench.decisions = {}
    plan = bench.plan()
    assert [d.code for d in plan.refusals] == ["GPU6002"]
    assert "b-3-g" in plan.refusals[0].message
    assert deleted(plan) == []
    bench.confirmed = frozenset({"another"})
    assert deleted(bench.plan()) == []
    bench.confirmed = frozenset({confirmation(plan)})
    assert ("Job", "b-3-g-") in [(kind, name[:6]) for kind, name in deleted(bench.plan())]
    for _ in range(6):
        assert bench.plan().refusals == ()
        bench.converge()
        bench.pass_ms(60_000)
    assert [ref for ref in bench.state().live if "team-b" in str(ref)] == []


def test_a_confirmation_stays_good_while_the_deletion_is_under_way() -> None:
    bench = Workbench(only(example(), "team-b/b-3-g", "team-b/b-4-gg"))
    bench.run("team-b/b-3-g", on("dgx1-1", 0))
    bench.run("team-b/b-4-gg", on("dgx1-1", 1, 2))
    bench.declared = without_project(bench.declared, "team-b")
    bench.decisions = {}
    bench.confirmed = frozenset({confirmation(bench.plan())})
    first = bench.plan()
    job = next(c for c in first.changes if c.ref.kind == "Job")
    bench.cluster.delete(job.ref, job.uid, job.resource_version)
    assert bench.plan().refusals == ()


def test_no_project_at_all_is_refused_for_each() -> None:
    bench = Workbench(only(example(), A1))
    bench.converge()
    bench.declared = without_project(bench.declared, "team-a", "team-b", "team-c", "team-d")
    plan = bench.plan()
    assert [d.code for d in plan.refusals] == ["GPU6001"] * 4
    assert plan.changes == ()


def test_a_claim_is_deleted_only_when_that_is_confirmed_and_the_rest_is_at_once() -> None:
    bench = Workbench(only(example({"a9.yaml": CLAIMING}), "team-a/a-9-data"))
    bench.converge()
    bench.declared = only(bench.declared)
    plan = bench.plan()
    assert [d.code for d in plan.refusals] == ["GPU6003"]
    assert {kind for kind, _ in deleted(plan)} == {"Job"}
    bench.converge()
    bench.confirmed = frozenset({confirmation(plan)})
    bench.converge()
    assert bench.live("PersistentVolumeClaim") == []


def test_what_confirms_the_end_of_running_jobs_does_not_confirm_the_loss_of_data() -> None:
    """The claim is one that a person made, and the jobs were all that a plan without the cluster could tell of."""
    bench = Workbench(only(example(), A1, "team-b/b-3-g"))
    bench.run("team-b/b-3-g", on("dgx1-1", 0))
    meta = {"name": "dataset", "namespace": "gpu-team-b"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    bench.cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    bench.declared = without_project(bench.declared, "team-b")
    bench.decisions = {}
    lines = confirmations(bench.plan())
    assert lines.keys() == {"GPU6002", "GPU6003"}
    for code, other in (("GPU6002", "GPU6003"), ("GPU6003", "GPU6002")):
        bench.confirmed = frozenset({lines[code]})
        assert ([each.code for each in bench.plan().refusals], deleted(bench.plan())) == ([other], [])
    bench.confirmed = frozenset(lines.values())
    for _ in range(6):
        assert bench.plan().refusals == ()
        bench.converge()
        bench.pass_ms(60_000)
    assert [ref for ref in bench.state().live if "team-b" in str(ref)] == []


class WithoutClaims(EmbeddedCluster):
    """Gives gpuctl no right to read claims, while `is_on`."""

    is_on = True

    def list(self, kind: Kind) -> ObjectList:
        if self.is_on and kind == CLAIM:
            raise Forbidden("GPU7015", "claims are forbidden")
        return super().list(kind)


def test_a_claim_that_can_not_be_read_keeps_its_namespace_and_its_place_in_the_ledger() -> None:
    """With its namespace its data would be deleted, and nobody would have confirmed that."""
    bench = Workbench(only(example({"a-9.yaml": CLAIMING}), "team-a/a-9-data"))
    bench.converge()
    bench.cluster.__class__ = WithoutClaims
    bench.object_cache = ObjectCache(bench.cluster)
    bench.declared = without_project(bench.declared, "team-a")
    bench.converge()
    bench.pass_ms(60_000)
    bench.converge()
    assert bench.live("Namespace", "gpu-team-a")
    (claim,) = [ref for ref in bench.state().ledgers[ProjectName("team-a")].inventory if ref.kind == CLAIM[1]]
    bench.cluster.is_on = False  # type: ignore[attr-defined]
    bench.confirmed = frozenset()
    assert [each.code for each in bench.plan().refusals] == ["GPU6003"]
    assert bench.live("PersistentVolumeClaim") == [(claim, bench.state().live[claim])]


def test_a_claim_somebody_made_in_the_namespace_holds_the_project_back() -> None:
    bench = Workbench(only(example(), A1))
    bench.converge()
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "own", "namespace": "gpu-team-b"},
    }
    bench.cluster.apply({
        **claim,
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
    bench.declared = without_project(bench.declared, "team-b")
    assert [d.code for d in bench.plan().refusals] == ["GPU6003"]
    assert deleted(bench.plan()) == []


def test_work_somebody_runs_in_the_namespace_holds_the_project_back() -> None:
    bench = Workbench(only(example(), A1))
    bench.converge()
    ((_, job),) = bench.live("Job")
    meta = {"name": "theirs", "namespace": "gpu-team-b"}
    bench.cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**job["spec"]}})
    bench.declared = without_project(bench.declared, "team-b")
    assert [d.code for d in bench.plan().refusals] == ["GPU6005"]


SPACE: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-team-a"}}
STRANGER: Body = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "operator", "namespace": "gpu-team-a"},
    "spec": {"containers": [{"name": "main", "image": "operator"}]},
}


def test_a_namespace_that_is_not_ours_is_refused_and_taken_over_when_told_so() -> None:
    bench = Workbench(only(example(), A1, "team-b/b-3-g"))
    bench.cluster.apply(SPACE)
    plan = bench.plan()
    assert [d.code for d in plan.refusals] == ["GPU6004"]
    assert plan.refusals[0].span.file.endswith("project.yaml")
    bench.converge()
    assert bench.live("Job", "a-1-g") == []
    assert len(bench.live("Job", "b-3-g")) == 1
    adopting = [replace(p, adopt=p.name == "team-a") for p in bench.declared.projects]
    bench.declared = replace(bench.declared, projects=tuple(adopting))
    assert [d.code for d in bench.plan().refusals] == ["GPU6008"]
    bench.cluster.apply({**SPACE, "metadata": {**SPACE["metadata"], "labels": {names.ADOPT_LABEL: "team-a"}}})
    bench.cluster.apply(STRANGER)
    assert [d.code for d in bench.plan().refusals] == ["GPU6009"]
    bench.converge()
    assert bench.live("Job", "a-1-g") == []
    bench.cluster.delete(ref_of(STRANGER), "", "")
    bench.pass_ms(60_000)
    bench.converge()
    assert len(bench.live("Job", "a-1-g")) == 1
    bench.cluster.apply(STRANGER)
    assert bench.plan().refusals == (), "it is the project's now, whatever runs in it besides"
    bench.declared = without_project(bench.declared, "team-a")
    for _ in range(6):
        bench.converge()
        bench.pass_ms(10_000)
    assert bench.live("Job", "a-1-g") == []
    assert len(bench.live("Namespace", "gpu-team-a")) == 1


def test_a_held_project_is_neither_written_nor_pruned() -> None:
    bench = Workbench(only(example(), A1, "team-b/b-3-g"))
    bench.run("team-b/b-3-g", on("dgx1-1", 0))
    bench.decisions = {}
    bench.declared = replace(without_project(bench.declared, "team-b"), pinned=frozenset({ProjectName("team-b")}))
    assert bench.plan().changes == ()
    assert bench.plan().refusals == ()


def without_cluster(body: Body) -> Body:
    labels = {key: value for key, value in labels_of(body).items() if key != names.CLUSTER_LABEL}
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


def test_labels_taken_off_protect_an_object_from_being_pruned() -> None:
    bench = Workbench(only(example(), A1))
    bench.converge()
    (_, quota), *_ = bench.live("ResourceQuota", "gpuctl")
    project = labels_of(quota)[names.PROJECT_LABEL]
    bench.declared = without_project(only(bench.declared), project)
    bench.cluster.update(without_cluster(quota))
    gone = [change.ref for change in bench.plan().changes if change.action is Action.DELETE]
    assert gone
    assert ref_of(quota) not in gone


def test_labels_taken_off_a_runs_object_do_not_keep_it_from_being_pruned() -> None:
    """Those whose job it is could have it run on for ever: it is known by its uid."""
    bench = Workbench(only(example(), A1))
    bench.converge()
    ((_, job),) = bench.live("Job")
    bench.declared = only(bench.declared)
    bench.cluster.update(without_cluster(job))
    assert [kind for kind, _ in deleted(bench.plan())] == ["Job"]


def test_another_clusters_objects_in_the_same_server_are_not_touched() -> None:
    bench = Workbench(only(example(), A1))
    bench.converge()
    before = bench.state().live
    other = replace(bench.declared.cluster, name="other", namespace_prefix="other-")
    bench.declared = replace(without_project(bench.declared, "team-a", "team-b", "team-c", "team-d"), cluster=other)
    assert deleted(bench.plan()) == []
    bench.converge()
    kept = {ref: body for ref, body in bench.state().live.items() if ref.namespace.startswith("gpu-team")}
    assert kept == {ref: body for ref, body in before.items() if ref.namespace.startswith("gpu-team")}


JOBS = tuple(str(job.id) for job in example().jobs)


@settings(max_examples=25)
@given(st.frozensets(st.sampled_from(JOBS)), st.frozensets(st.sampled_from(JOBS)), st.booleans())
def test_nothing_outside_the_inventory_is_ever_deleted_and_the_last_plan_is_empty(
    before: frozenset[str],
    after: frozenset[str],
    drop: bool,  # noqa: FBT001 - drawn
) -> None:
    bench = Workbench(only(example(), *before))
    bench.converge()
    foreign = ObjectRef("v1", "ConfigMap", "gpu-team-a", "theirs")
    labels = {names.MANAGED_BY_LABEL: "gpuctl", names.CLUSTER_LABEL: "tr4858", names.PROJECT_LABEL: "team-a"}
    meta = {"name": foreign.name, "namespace": foreign.namespace, "labels": labels}
    bench.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    bench.declared = only(without_project(example(), "team-c") if drop else example(), *after)
    for _ in range(4):
        state, plan = bench.state(), bench.plan()
        known = {ref for ledger in state.ledgers.values() for ref in ledger.inventory}
        ledgers = {ref for ref in state.live if ref.namespace == names.SYSTEM_NAMESPACE}
        assert {c.ref for c in plan.changes if c.action is Action.DELETE} <= known | ledgers
        bench.converge()
        bench.pass_ms(10_000)
    assert bench.plan().changes == ()
    assert foreign in bench.state().live


def test_a_thousand_jobs_unchanged_are_no_writes() -> None:
    text = "\n---\n".join(
        f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: j{n}, project: team-{'abcd'[n % 4]}}}\n"
        "spec: {image: x, gpus: 1}"
        for n in range(1000)
    )
    bench = Workbench(example({"many.yaml": text}))
    bench.converge()
    plan = bench.plan()
    assert plan.changes == ()
    assert plan.unchanged > 1000
