"""What `plan` foresees is what then happens, commit by commit, in the embedded cluster."""

from __future__ import annotations

import re
from random import Random

import pytest
from commits import job, project

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.effects import Confirmed, on_cluster, read_objects
from gpuctl.app.explaining import explain_live
from gpuctl.app.planning import Side, plan_report
from gpuctl.app.play import Play, Sandbox
from gpuctl.compile import compile_tree
from gpuctl.k8s import names
from gpuctl.model.comparison import Comparison
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared
from gpuctl.model.effect import Effect
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import RunPhase
from gpuctl.observe import observe
from gpuctl.views.plan_report import PlanReport, effect_remarks
from gpuctl.views.plan_text import text

AT_MS = 1_596_000_000_000
CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: one}
spec:
  nodePools: [{name: p, nodes: [n1, n2], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: T, sharing: device-plugin}]
  scheduling: {stopGuard: 100, overcommitQuota: true, starvationGuard: 24h}
"""
PROJECTS = ("a", "b", "c")
SEEDS, STEPS = 12, 14

Running = dict[JobId, tuple[str, Placement | None]]
Files = dict[str, str]


def declared(files: Files) -> Declared:
    sources = {path: SourceFile(content=text.encode()) for path, text in files.items()}
    compiled = compile_tree(SourceTree(cluster_dir="c", files=sources))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


def changed(files: Files, random: Random) -> Files:
    """One to three things that people do: a quota, a job more, a job less, one changed, one suspended."""
    after = dict(files)
    for _ in range(random.randint(1, 3)):
        owner = random.choice(PROJECTS)
        mine = sorted(path for path in after if path.startswith(f"c/projects/{owner}/j"))
        match random.choice(("quota", "more", "more", "more", "less", "changed", "suspended", "resumed")):
            case "quota":
                after[f"c/projects/{owner}/project.yaml"] = project(owner, random.randint(0, 5))
            case "more":
                name = f"j{len(after)}-{random.randint(0, 99)}"
                text = job(name, owner, random.randint(1, 4)).replace(
                    "gpus:", f"priority: {random.randint(0, 2)}, gpus:"
                )
                after[f"c/projects/{owner}/{name}.yaml"] = text
            case "less" if mine:
                del after[random.choice(mine)]
            case "changed" if mine:
                path = random.choice(mine)
                after[path] = after[path].replace("image: x", "image: xx")
            case "suspended" if mine:
                path = random.choice(mine)
                after[path] = after[path].replace("spec: {image", "spec: {suspend: true, image")
            case "resumed":
                for path in mine:
                    after[path] = after[path].replace("suspend: true, ", "")
            case _:
                pass
    return after


class Lab:
    """An embedded cluster that is made like one tree after the other."""

    def __init__(self) -> None:
        clock = VirtualClock(AT_MS)
        self.clock, self.cluster = clock, EmbeddedCluster(clock)
        self.sandbox = Sandbox(cluster=self.cluster, machines=self.cluster, world=self.cluster, time=clock)
        self.play: Play | None = None

    def take(self, tree: Declared) -> None:
        """Enforce it until nothing starts or stops any more."""
        if self.play is None:
            self.play = Play(self.sandbox, tree, AT_MS)
        else:
            self.play.declare(tree)
        self.play.pass_until(self.clock.now_ms() + 60_000, "step")
        self.play.move_to(self.clock.now_ms() + 60_000)

    def running(self) -> Running:
        state = observe(read_objects(self.cluster))
        active = (run for run in state.runs if run.phase in {RunPhase.STARTING, RunPhase.RUNNING})
        return {run.job: (run.digest, run.placement) for run in active}

    def foresee(self, base: Declared, head: Declared) -> Effect:
        return on_cluster(base, head, read_objects(self.cluster), self.clock.now_ms()).effect


def foreseen(before: Running, effect: Effect, head: Declared) -> Running:
    """Which jobs run where, if the effect comes true."""
    digests = {each.id: each.digest for each in head.jobs}
    gone = {each.job for each in effect.paused} | {each.job for each in effect.stopped}
    placed = {start.job: start.placement for start in effect.started}
    placed |= {move.job: move.after for move in effect.moved}
    kept = {name: run for name, run in before.items() if name not in gone | placed.keys()}
    return kept | {name: (digests[name], place) for name, place in placed.items()}


@pytest.mark.parametrize("is_taken", [True, False])
def test_what_stands_in_the_way_of_a_job_is_told_beside_what_would_be_created(*, is_taken: bool) -> None:
    """A foreign object of the run's name, or a namespace that is being deleted: the plan said "create" and "starts"."""
    lab, files = Lab(), {"c/cluster.yaml": CLUSTER, "c/projects/a/project.yaml": project("a", 3)}
    base, head = declared(files), declared({**files, "c/projects/a/j.yaml": job("j", "a", 1)})
    lab.take(base)
    name = names.run_name("j", head.jobs[0].digest)
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}
    meta = {"name": name if is_taken else "stays", "namespace": "gpu-a", "finalizers": ["example.com/hold"]}
    lab.cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}})
    if not is_taken:
        lab.cluster.delete(ObjectRef("v1", "Namespace", "", "gpu-a"), "", "")
    found = on_cluster(base, head, read_objects(lab.cluster), lab.clock.now_ms())
    report = plan_report(
        Side(declared=base), Side(declared=head), Comparison(base="main", head="new", folder="c"), found
    )
    told = [each.reason for each in report.objects if each.ref.name == name]
    by_name = "once the object of that name is gone that gpuctl did not create (GPU7057)"
    by_space = "once the namespace that is being deleted is gone (GPU7023)"
    assert told == [f"declared, {by_name if is_taken else by_space}"]
    assert [each.reason.code for each in found.effect.waits] == ["GPU5072" if is_taken else "GPU7023"]
    assert found.effect.started == ()


def test_a_claim_that_a_person_made_is_told_beside_what_would_be_created() -> None:
    lab, files = Lab(), {"c/cluster.yaml": CLUSTER, "c/projects/a/project.yaml": project("a", 3)}
    more = ", volumes: [{newClaim: {size: 2Gi}, mountPath: /d}]"
    asks = job("j", "a", 1).replace("gpus: 1", f"gpus: 1{more}")
    base, head = declared(files), declared({**files, "c/projects/a/j.yaml": asks})
    assert more in asks
    lab.take(base)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    meta = {"name": "pvc-j-0", "namespace": "gpu-a"}
    lab.cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    found = on_cluster(base, head, read_objects(lab.cluster), lab.clock.now_ms())
    report = plan_report(
        Side(declared=base), Side(declared=head), Comparison(base="main", head="new", folder="c"), found
    )
    told = [each.reason for each in report.objects if each.ref.name == "pvc-j-0"]
    assert told == ["declared, once the object of that name is gone that gpuctl did not create (GPU7060)"]
    assert [(str(each.job), each.reason.code) for each in found.effect.waits] == [("a/j", "GPU5072")]
    assert found.effect.started == ()
    lab.take(head)
    assert lab.running() == {}
    later = lab.foresee(head, declared({**files, "c/projects/a/j.yaml": asks, "c/projects/a/k.yaml": job("k", "a", 1)}))
    assert [str(each.job) for each in later.started] == ["a/k"]


def test_a_project_whose_removal_is_refused_keeps_its_gpus_until_the_change_confirms_it() -> None:
    """The plan counted it as gone: a new job was to start at once on its GPUs."""
    lab, files = Lab(), {"c/cluster.yaml": CLUSTER, "c/projects/a/project.yaml": project("a", 4)}
    files |= {"c/projects/a/j.yaml": job("j", "a", 3)}
    of_b = {"c/projects/b/project.yaml": project("b", 4), "c/projects/b/k.yaml": job("k", "b", 4)}
    lab.take(declared(files | of_b))
    base, head = declared(files), declared({**files, "c/projects/a/n.yaml": job("n", "a", 4)})
    lab.take(base)
    assert [str(job) for job in sorted(lab.running())] == ["a/j", "b/k"]
    found = on_cluster(base, head, read_objects(lab.cluster), lab.clock.now_ms())
    (refusal,) = found.refusals.standing
    assert (refusal.code, found.effect.started, found.effect.stopped) == ("GPU6002", (), ())
    assert [str(each.job) for each in found.effect.waits] == ["a/n"]
    compared = Comparison(base="main", head="new", folder="c")
    report = plan_report(Side(declared=base), Side(declared=head), compared, found)
    assert effect_remarks(report, found.effect)[0] == "What is refused already stays as it is."
    told = explain_live(head, lab.cluster, lab.clock, JobId.parse("a/n"))
    assert told is not None
    assert told.forecast is not None
    assert told.forecast.start_ms is None
    back = lab.foresee(base, declared(files | of_b))
    assert (back.started, back.stopped, back.unaffected) == ((), (), 2)
    said = frozenset(re.findall("[0-9a-f]{12}", refusal.help))
    confirmed = Confirmed(of_all=said, before=frozenset())
    then = on_cluster(base, head, read_objects(lab.cluster), lab.clock.now_ms(), confirmed)
    assert [str(each.job) for each in then.effect.stopped] == ["b/k"]
    assert [str(each.job) for each in then.effect.started] == ["a/n"]
    lab.take(head)
    assert [str(job) for job in sorted(lab.running())] == ["a/j", "b/k"]


def test_a_commit_that_confirms_and_declares_nothing_is_no_plan_without_changes() -> None:
    """The plan of a pull request that ends jobs said "No changes"."""
    lab, files = Lab(), {"c/cluster.yaml": CLUSTER, "c/projects/a/project.yaml": project("a", 4)}
    of_b = {"c/projects/b/project.yaml": project("b", 4), "c/projects/b/k.yaml": job("k", "b", 4)}
    lab.take(declared(files | of_b))
    base = declared(files)
    lab.take(base)

    def plan(confirmed: Confirmed) -> PlanReport:
        found = on_cluster(base, base, read_objects(lab.cluster), lab.clock.now_ms(), confirmed)
        compared = Comparison(base="main", head="new", folder="c")
        return plan_report(Side(declared=base), Side(declared=base), compared, found)

    (refusal,) = plan(Confirmed()).refusals.standing
    assert plan(Confirmed()).empty
    said = frozenset(re.findall("[0-9a-f]{12}", refusal.help))
    assert plan(Confirmed(of_all=said, before=said)).empty
    report = plan(Confirmed(of_all=said))
    lines = ["".join(segment.text for segment in line) for line in text(report)]
    assert lines[0] == "Plan: no object changes  (main -> new)"
    assert lines[1].startswith("confirmed by a commit, GPU6002: ")
    assert any(line.startswith("Effect: 1 job ends") for line in lines), lines


@pytest.mark.parametrize(("forbids", "is_held"), [("delete", True), ("pause", False)])
def test_the_plan_of_a_change_that_only_confirms_says_that_a_window_holds_it(forbids: str, *, is_held: bool) -> None:
    window = f"  freeze: [{{cron: '20 5 * * *', duration: 1h, forbids: [{forbids}]}}]\n"
    lab, files = Lab(), {"c/cluster.yaml": CLUSTER + window, "c/projects/a/project.yaml": project("a", 4)}
    of_b = {"c/projects/b/project.yaml": project("b", 4), "c/projects/b/k.yaml": job("k", "b", 4)}
    lab.take(declared(files | of_b))
    base = declared(files)
    lab.take(base)
    objects, now_ms = read_objects(lab.cluster), lab.clock.now_ms()
    (refusal,) = on_cluster(base, base, objects, now_ms).refusals.standing
    said = frozenset(re.findall("[0-9a-f]{12}", refusal.help))
    found = on_cluster(base, base, objects, now_ms, Confirmed(of_all=said)).refusals.new
    assert [each.code for each in found] == (["GPU6013"] if is_held else [])
    assert all(each.message.endswith("the commit removes what GPU6002 refuses") for each in found)


def test_removed_jobs_that_a_guard_keeps_hold_their_gpus_in_a_plan() -> None:
    lab, guarded = Lab(), CLUSTER.replace("stopGuard: 100", "stopGuard: 50")
    files = {"c/cluster.yaml": guarded, "c/projects/a/project.yaml": project("a", 4)}
    lab.take(declared(files | {f"c/projects/a/j{n}.yaml": job(f"j{n}", "a", 4) for n in range(2)}))
    base, head = declared(files), declared({**files, "c/projects/a/n.yaml": job("n", "a", 4)})
    lab.take(base)
    assert len(lab.running()) == 2
    found = on_cluster(base, head, read_objects(lab.cluster), lab.clock.now_ms())
    assert [each.code for each in found.refusals.standing] == ["GPU6007"]
    assert (found.effect.started, found.effect.stopped) == ((), ())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_foreseen_happens(seed: int) -> None:
    random, lab = Random(seed), Lab()
    files: Files = {"c/cluster.yaml": CLUSTER} | {
        f"c/projects/{name}/project.yaml": project(name, 3) for name in PROJECTS
    }
    base = declared(files)
    lab.take(base)
    for _ in range(STEPS):
        files = changed(files, random)
        head = declared(files)
        before, effect = lab.running(), lab.foresee(base, head)
        lab.take(head)
        assert lab.running() == foreseen(before, effect, head)
        base = head
