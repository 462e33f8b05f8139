"""What is not done: objects the server refuses, declarations that stop too much, namespaces of another cluster, and
nodes that are otherwise than declared. Each is told once, keeps nobody from anything, and ends when it is right."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from refusing import OnlyInEarnest, Refusing, RefusingStarts
from stage import BASE, CLUSTER, IN_GIT, Stage, Withdrawn, WithoutGit, job, project

from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.drift import drift_report
from gpuctl.app.ports import Forbidden, WebhookAway
from gpuctl.app.rejections import RETRY_MS
from gpuctl.app.status import Direct, read_status
from gpuctl.compile import compile_tree
from gpuctl.diag.wording import reason_text
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import labels_of, mapping, ref_of, resource_version, uid
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import RunPhase

RUNNING = {"a/j1": "Running", "b/j2": "Running"}


@pytest.fixture
def sort() -> type[Stage]:
    """The sort of stage."""
    return WithoutGit


@pytest.fixture
def stage(tmp_path: Path, sort: type[Stage]) -> Stage:
    made = sort(tmp_path)
    made.commit(BASE)
    made.play(20)
    assert made.phases() == RUNNING
    return made


@pytest.mark.parametrize("is_busy", [False, True], ids=["quiet", "its owner writes on it"])
def test_runs_are_paused_once_for_one_whose_start_alone_is_refused(stage: Stage, *, is_busy: bool) -> None:
    stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=3), "c/projects/b/j2.yaml": None})
    stage.play(60)
    assert stage.phases() == {"a/j1": "Running", "b/big": "Running"}
    stage.through = refusing = RefusingStarts(stage.cluster, "new-")
    stage.commit({"c/projects/a/new.yaml": job("new", "a")})
    if is_busy:
        for second in range(70, 400, 7):
            stage.at(second, partial(noted, stage, "new-", str(second)))
    stage.play(400)
    assert refusing.asked
    assert stage.phases() == {"a/j1": "Running", "a/new": "Queued", "b/big": "Running"}
    assert {str(run.job): run.starts for run in stage.state().runs} == {"a/j1": 1, "a/new": 0, "b/big": 2}
    refusing.strict = False
    stage.play(480)
    assert stage.phases() == {"a/j1": "Running", "a/new": "Running", "b/big": "Queued"}


def test_a_start_that_is_refused_though_its_dry_run_was_taken_is_a_failed_one(stage: Stage) -> None:
    """Others were paused for it each minute, without end. They are twice, and then every two hours."""
    stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=3), "c/projects/b/j2.yaml": None})
    stage.play(60)
    stage.through = refusing = OnlyInEarnest(stage.cluster, "new-")
    stage.commit({"c/projects/a/new.yaml": job("new", "a")})
    stage.play(2 * 3600)
    assert stage.phases() == {"a/j1": "Running", "a/new": "Queued", "b/big": "Running"}
    runs = {str(run.job): run for run in stage.state().runs}
    assert (runs["b/big"].starts, runs["a/new"].starts, runs["a/new"].failed_starts) == (3, 0, 1)
    reason = runs["a/new"].reason
    assert reason is not None
    assert (reason.code, dict(reason.params)["problem"]) == ("GPU5092", "spec.template.spec: Invalid value")
    stage.play(5 * 3600)
    assert {str(run.job): run.starts for run in stage.state().runs} == {"a/j1": 1, "a/new": 0, "b/big": 5}
    stage.commit({"c/projects/b/big.yaml": None})
    stage.play(5 * 3600 + 1800)
    refusing.strict = False
    stage.play(6 * 3600)
    assert stage.phases() == {"a/j1": "Running", "a/new": "Running"}
    assert {run.failed_starts for run in stage.state().runs} == {0}


def noted(stage: Stage, name: str, note: str) -> None:
    """A note of a tenant on its own job's object."""
    _, body = stage.live("Job", name)
    notes = {**mapping(body, "metadata", "annotations"), "mine": note}
    stage.cluster.update({**body, "metadata": {**body["metadata"], "annotations": notes}})


def test_a_refused_job_keeps_no_place_and_is_not_asked_for_again_and_again(stage: Stage) -> None:
    """It is first in line and would fit. Without its place `big` fits too, and must not wait for it for ever."""
    stage.through = refusing = Refusing(stage.cluster, "bad-")
    stage.commit({"c/projects/a/bad.yaml": job("bad", "a", more=", priority: 9")})
    stage.at(40, lambda: stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=2)}))
    stage.play(200)
    assert stage.phases() == RUNNING | {"b/big": "Running"}
    assert stage.codes("failed") == ["GPU7006"]
    assert refusing.asked <= 4


def test_a_refused_job_is_tried_again_when_it_changes_and_after_a_while(stage: Stage) -> None:
    stage.through = refusing = Refusing(stage.cluster, "bad-")
    stage.commit({"c/projects/a/bad.yaml": job("bad", "a"), "c/projects/b/bad.yaml": job("bad-2", "b")})

    def relent() -> None:
        refusing.strict = False

    def is_left_alone() -> None:
        assert stage.phases() == RUNNING
        stage.commit({"c/projects/a/bad.yaml": job("bad", "a", more=", runIndex: 2")})

    def is_tried() -> None:
        assert stage.phases() == RUNNING | {"a/bad": "Running"}

    stage.at(30, relent)
    stage.at(40, is_left_alone)
    stage.at(66, is_tried)
    stage.play(20 + RETRY_MS // 1000 + 60)
    assert stage.phases() == RUNNING | {"a/bad": "Running", "b/bad-2": "Running"}
    assert stage.events().count("resolved") == 2


def test_an_object_that_the_server_can_not_count_yet_is_tried_again_soon(stage: Stage) -> None:
    """The first of a kind that was defined just now, where a quota counts such objects."""
    stage.through = refusing = Refusing(stage.cluster, "new-")
    refusing.fault = Forbidden("GPU7002", "forbidden: status unknown for quota: gpuctl, resources: count/jobs.batch")
    stage.commit({"c/projects/a/new.yaml": job("new", "a")})

    def relent() -> None:
        refusing.strict = False

    stage.at(30, relent)
    stage.play(45)
    assert stage.phases() == RUNNING | {"a/new": "Running"}
    assert stage.codes("failed") == ["GPU7002"]


NO_RIGHT = Forbidden("GPU7015", "gpuctl may not patch jobs.batch")


@pytest.mark.parametrize("write", [Refusing, RefusingStarts], ids=["made", "let go"])
def test_what_a_server_without_roles_refuses_is_tried_again_in_seconds_and_not_told(
    stage: Stage, write: type[Refusing]
) -> None:
    """It has just started. A missing right was told, and the job rested a minute while another took its place."""
    stage.through = refusing = write(stage.cluster, "new-")
    refusing.fault = NO_RIGHT
    stage.commit({"c/projects/a/new.yaml": job("new", "a", 2)})
    stage.at(26, lambda: stage.commit({"c/projects/b/late.yaml": job("late", "b", 2)}))

    def has_read_its_roles() -> None:
        assert refusing.asked == 1
        refusing.strict = False

    stage.at(23, has_read_its_roles)
    stage.play(40)
    assert stage.phases() == RUNNING | {"a/new": "Running", "b/late": "Queued"}
    assert stage.codes() == []
    assert {note.reason for note in stage.notes} & {"Refused"} == set()


def test_a_right_that_is_missing_is_told_after_some_seconds_and_asked_for_each_minute(stage: Stage) -> None:
    stage.through = refusing = Refusing(stage.cluster, "new-")
    refusing.fault = NO_RIGHT
    stage.commit({f"c/projects/a/new-{n}.yaml": job(f"new-{n}", "a") for n in range(5)})
    stage.at(22, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b", 2)}))

    def is_told() -> None:
        assert stage.codes("failed") == ["GPU7015"] * 5
        assert sum(note.reason == "Refused" for note in stage.notes) == 5
        assert stage.phases() == RUNNING | {"b/j3": "Running"}, "it keeps no place"

    def relent() -> None:
        assert refusing.asked <= 5 * (3 + 10)
        assert stage.events().count("resolved") == 0
        refusing.strict = False

    stage.at(32, is_told)
    stage.at(32 + 10 * RETRY_MS // 1000, relent)
    stage.play(32 + 12 * RETRY_MS // 1000)
    assert len(stage.phases()) == 8
    assert stage.events().count("resolved") == 5


CHANGED = project("a", more=", limit: 2, access: [{group: all, role: view}]")
QUOTA = ObjectRef(*kinds.RESOURCE_QUOTA, "gpu-a", names.QUOTA_NAME)
OF_PROJECTS = {"RoleBinding": "gpuctl-", "ResourceQuota": "gpuctl", "ConfigMap": "ledger.one.a", "Namespace": "gpu-a"}


@pytest.mark.parametrize("kind", OF_PROJECTS)
def test_a_refused_object_of_a_project_is_not_asked_for_again_and_again(stage: Stage, kind: str) -> None:
    """The role of a RoleBinding can't change, and it was tried in every cycle for ever."""
    stage.through = refusing = Refusing(stage.cluster, OF_PROJECTS[kind], kind)
    more = {
        "c/projects/a/j1.yaml": None,
        "c/projects/a/j4.yaml": job("j4", "a"),
        "c/projects/b/j3.yaml": job("j3", "b"),
    }
    stage.commit({"c/projects/a/project.yaml": CHANGED, **more})
    own = {"b/j2": "Running", "b/j3": "Running"}

    def relent() -> None:
        stands = kind in {"ConfigMap", "Namespace"}
        assert stage.phases() == own | ({"a/j1": "Running"} if stands else {"a/j4": "Running"})
        assert 1 <= refusing.asked <= 6, "the status of a quota changes with each pod"
        refusing.strict = False

    stage.at(190, relent)
    stage.play(270)
    assert stage.codes("failed") == ["GPU7006"]
    assert stage.phases() == own | {"a/j4": "Running"}
    assert stage.events().count("resolved") == 1


GROUNDS = {"Namespace": "gpu-new", "ConfigMap": "ledger.one.new"}


@pytest.mark.parametrize("kind", GROUNDS)
def test_jobs_of_a_project_without_its_ground_keep_no_gpus_from_others(stage: Stage, kind: str) -> None:
    """A policy of the cluster wants a label on each namespace. `first` has a right to the idle GPUs, and can't be made:
    they stayed idle for ever."""
    stage.through = refusing = Refusing(stage.cluster, GROUNDS[kind], kind)
    settings = {"c/projects/a/project.yaml": project("a", 1), "c/projects/b/project.yaml": project("b", 1)}
    new = {"c/projects/new/project.yaml": project("new"), "c/projects/new/first.yaml": job("first", "new", 2)}
    stage.commit({**settings, **new})
    stage.at(40, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b", 2)}))

    def relent() -> None:
        assert stage.phases() == RUNNING | {"b/j3": "Running"}
        refusing.strict = False
        stage.commit({"c/projects/b/j3.yaml": None})

    stage.at(190, relent)
    stage.play(270)
    assert stage.phases() == RUNNING | {"new/first": "Running"}
    assert stage.codes("failed") == ["GPU7006"]


def test_no_run_is_paused_for_one_that_the_server_takes_no_change_of(tmp_path: Path) -> None:
    """It has a right to GPUs that others have beyond their quota, and could not be let go: each minute, when its write
    was tried again, they were paused for it in vain."""
    stage = WithoutGit(tmp_path)
    beyond = {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(4)}
    stage.commit({**BASE, **beyond, "c/projects/a/j1.yaml": None, "c/projects/b/j2.yaml": None})
    stage.play(20)
    stage.commit({"c/projects/b/late.yaml": job("late", "b", 2, ", suspend: true")})
    stage.play(40)
    others = {f"a/k{n}": "Running" for n in range(4)}
    assert stage.phases() == others | {"b/late": "Queued"}
    stage.through = refusing = Refusing(stage.cluster, "late-")
    stage.commit({"c/projects/b/late.yaml": job("late", "b", 2)})

    def relent() -> None:
        assert stage.phases() == others | {"b/late": "Queued"}
        assert {run.starts for run in stage.state().runs if run.job.project == "a"} == {1}
        refusing.strict = False

    stage.at(40 + 3 * RETRY_MS // 1000, relent)
    stage.play(40 + 5 * RETRY_MS // 1000)
    assert stage.phases()["b/late"] == "Running"
    assert sorted(stage.phases().values()).count("Queued") == 2


def test_a_webhook_that_does_not_answer_holds_up_the_jobs_of_its_kind_alone(stage: Stage) -> None:
    """As one for Ingresses: each of its requests fails, and may take the server ten seconds before that."""
    stage.commit({"c/cluster.yaml": CLUSTER + "  ingress: {host: gpus.example.com, className: nginx}\n"})
    stage.play(30)
    stage.through = refusing = Refusing(stage.cluster, "", "Ingress")
    refusing.fault = WebhookAway("GPU7006", 'failed calling webhook "ingress.example.com": refused')
    web = ", type: interactive, expose: [{port: 80, via: ingress}]"
    files = {f"c/projects/a/web-{n}.yaml": job(f"web-{n}", "a", 0, web) for n in range(10)}
    stage.commit({**files, "c/projects/b/j2.yaml": job("j2", "b", 2)})
    stage.play(60)
    assert stage.phases() == RUNNING | {f"a/web-{n}": "Queued" for n in range(10)}
    asked = refusing.asked
    stage.play(120)
    assert refusing.asked - asked <= 60 // 5
    assert "failed calling webhook" in next(line["message"] for line in stage.lines if line["event"] == "failed")
    refusing.strict = False
    stage.play(140)
    assert set(stage.phases().values()) == {"Running"}


def test_a_refused_deletion_is_not_asked_for_again_and_again(stage: Stage) -> None:
    stage.through = refusing = Refusing(stage.cluster, "j1-")
    stage.commit({"c/projects/a/j1.yaml": None})

    def relent() -> None:
        assert stage.phases() == RUNNING
        assert 1 <= refusing.asked <= 4
        refusing.strict = False

    stage.at(190, relent)
    stage.play(270)
    assert stage.codes("failed") == ["GPU7006"]
    assert stage.phases() == {"b/j2": "Running"}


@pytest.mark.parametrize("what", ["declaration", "object"])
def test_a_refused_object_of_a_project_is_tried_at_once_when_anything_of_it_is_another(stage: Stage, what: str) -> None:
    stage.through = refusing = Refusing(stage.cluster, "gpuctl", "ResourceQuota")
    stage.commit({"c/projects/a/project.yaml": CHANGED})

    def change() -> None:
        refusing.strict = False
        if what == "declaration":
            stage.commit({"c/projects/a/project.yaml": CHANGED.replace("limit: 2", "limit: 3")})
        else:
            body = stage.state().live[QUOTA]
            stage.cluster.update({**body, "metadata": {**body["metadata"], "annotations": {"x": "y"}}})

    stage.at(40, change)
    stage.play(55)
    assert stage.state().live[QUOTA]["spec"]["hard"]["requests.nvidia.com/gpu"] == (
        "3" if what == "declaration" else "2"
    )


def test_a_waiting_job_whose_pool_shares_otherwise_now_is_made_anew_and_never_lost(stage: Stage) -> None:
    stage.commit({f"c/projects/a/k{n}.yaml": job(f"k{n}", "a", gpus=2) for n in range(2)})
    stage.play(60)
    (waiting,) = [name for name, phase in stage.phases().items() if phase == "Queued"]
    ref, before = stage.live("Job", f"{waiting.removeprefix('a/')}-")
    stage.commit({"c/cluster.yaml": CLUSTER.replace("device-plugin", "dra")})
    stage.play(120)
    _, after = stage.live("Job", ref.name)
    assert uid(after) != uid(before)
    assert "resourceClaims" in mapping(after, "spec", "template", "spec")
    assert stage.phases()[waiting] == "Queued"
    key = next(key for key in stage.state().ledgers[ProjectName("a")].seen if str(key[0]) == waiting)
    assert ref.name == names.run_name(key[0].name, key[1])
    assert stage.codes("failed") == []


def test_a_job_that_ran_is_never_deleted_for_a_change_the_server_refuses(stage: Stage) -> None:
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", suspend: true")})
    stage.play(60)
    _, before = stage.live("Job", "j1-")
    stage.commit({"c/cluster.yaml": CLUSTER.replace("device-plugin", "dra")})
    stage.play(120)
    _, after = stage.live("Job", "j1-")
    assert uid(after) == uid(before)


MANY = {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(2)}


@IN_GIT
def test_a_commit_that_stops_more_than_half_of_what_runs_waits_for_a_word(stage: Stage) -> None:
    stage.commit(MANY)
    stage.play(60)
    before = stage.phases()
    assert set(before.values()) == {"Running"}
    mistake = dict.fromkeys((*MANY, "c/projects/a/j1.yaml"))
    stage.commit({**mistake, "c/projects/b/j3.yaml": job("j3", "b")})
    stage.play(120)
    assert stage.phases() == before | {"b/j3": "Queued"}
    (told,) = [line for line in stage.lines if line["event"] == "refused"]
    assert told["code"] == "GPU6007"
    assert "3 of 4 running GPUs" in told["message"]
    trailer = told["help"].rpartition("`")[0].rpartition("`")[2]
    stage.commit({"README.md": "it is meant"}, f"Stop them\n\n{trailer}\n")
    stage.play(200)
    assert stage.phases() == {"b/j2": "Running", "b/j3": "Running"}


def test_a_default_that_changes_every_job_starts_no_second_run_beside_the_first(stage: Stage) -> None:
    stage.commit(MANY)
    stage.play(60)
    stage.commit(
        {path: text.replace("image: x", "image: y") for path, text in MANY.items()}
        | {"c/projects/a/j1.yaml": job("j1", "a").replace("image: x", "image: y")}
    )
    stage.play(120)
    active = [str(run.job) for run in stage.state().runs if run.phase is RunPhase.RUNNING]
    waiting = {run.reason.code for run in stage.state().runs if run.phase is RunPhase.QUEUED and run.reason}
    assert sorted(active) == ["a/j1", "a/k0", "a/k1", "b/j2"]
    assert waiting == {"GPU5071"}
    stage.commit({**MANY, "c/projects/a/j1.yaml": job("j1", "a")})
    stage.play(160)
    assert stage.phases() == RUNNING | {"a/k0": "Running", "a/k1": "Running"}
    assert {run.starts for run in stage.state().runs} == {1}


@pytest.mark.parametrize("change", ["removed", "changed"])
def test_what_runs_on_keeps_its_service_url_and_claims(tmp_path: Path, change: str) -> None:
    """A new pod of it has a claim after that, and all that asks it for answers still finds it where it was."""
    stage = WithoutGit(tmp_path)
    served = ", type: inference, expose: [{port: 80, via: ingress}]"
    jobs = {f"c/projects/a/{name}.yaml": job(name, "a", 1, served) for name in ("s", "t")}
    settings = CLUSTER.replace("device-plugin", "dra") + "  ingress: {host: gpus.example.com}\n"
    stage.commit({"c/cluster.yaml": settings, "c/projects/a/project.yaml": project("a"), **jobs})
    stage.play(30)
    needed = (kinds.SERVICE, kinds.INGRESS, kinds.CLAIM_TEMPLATE)
    before = {ref_of(body): body["spec"] for kind in needed for body in stage.cluster.list(kind).items}
    assert len(before) == 6
    stage.commit({
        path: None if change == "removed" else text.replace("image: x", "image: y").replace("port: 80", "port: 81")
        for path, text in jobs.items()
    })
    stage.play(90)
    assert stage.codes("refused") == ["GPU6007"]
    after = {ref_of(body): body["spec"] for kind in needed for body in stage.cluster.list(kind).items}
    assert after == before


def ceilings(stage: Stage) -> set[str]:
    """How many devices may be claimed in the namespaces of projects."""
    found = stage.cluster.list(kinds.RESOURCE_QUOTA).items
    hard = [body["spec"]["hard"] for body in found if body["metadata"]["name"] == names.QUOTA_NAME]
    return {most for each in hard for name, most in each.items() if "deviceclass" in name}


def test_a_job_starts_beside_removed_ones_that_run_on(tmp_path: Path) -> None:
    """What they hold is added to the ceiling of claims, which is twice what is declared."""

    made = WithoutGit(tmp_path)
    jobs = {f"c/projects/a/{name}.yaml": job(name, "a") for name in ("i", "j", "k")}
    settings = CLUSTER.replace("device-plugin", "dra")
    made.commit({"c/cluster.yaml": settings, "c/projects/a/project.yaml": project("a", 4), **jobs})
    made.play(30)
    assert ceilings(made) == {"6"}
    made.commit({**dict.fromkeys(jobs), "c/projects/a/new.yaml": job("new", "a")})
    made.play(90)
    assert (set(made.codes("refused")), set(made.phases().values()), ceilings(made)) == (
        {"GPU6007"},
        {"Running"},
        {"5"},
    )
    assert "a/new" in made.phases()
    made.commit({"c/cluster.yaml": settings + "  scheduling: {stopGuard: 100}\n"})
    made.play(150)
    assert (made.phases(), ceilings(made)) == ({"a/new": "Running"}, {"2"})


def test_the_guard_is_the_clusters_choice(stage: Stage) -> None:
    stage.commit({**MANY, "c/cluster.yaml": CLUSTER + "  scheduling: {stopGuard: 100}\n"})
    stage.play(60)
    stage.commit(dict.fromkeys((*MANY, "c/projects/a/j1.yaml")))
    stage.play(120)
    assert stage.phases() == {"b/j2": "Running"}


WAITING = {f"c/projects/a/w{n}.yaml": job(f"w{n}", "a", gpus=4) for n in range(3)}
FEW = {"c/cluster.yaml": CLUSTER + "  scheduling: {deleteGuard: 2}\n"}


def trailer_of(stage: Stage, code: str) -> str:
    (told,) = [line for line in stage.lines if line["event"] == "refused"]
    assert told["code"] == code
    return str(told["help"].rpartition("`")[0].rpartition("`")[2])


@IN_GIT
def test_a_commit_that_removes_many_jobs_waits_for_a_word(stage: Stage) -> None:
    stage.commit({**WAITING, **FEW})
    stage.play(60)
    before = stage.phases()
    assert before == RUNNING | dict.fromkeys(("a/w0", "a/w1", "a/w2"), "Queued")
    stage.commit({**dict.fromkeys(WAITING), "c/projects/b/j3.yaml": job("j3", "b")})
    stage.play(120)
    assert stage.phases() == before | {"b/j3": "Running"}
    line = trailer_of(stage, "GPU6010")
    stage.commit({"README.md": "it is meant"}, f"Remove them\n\n{line}\n")
    stage.play(200)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}


@IN_GIT
def test_the_word_counts_for_one_removal_of_many_jobs(stage: Stage) -> None:
    """Twice the same jobs are declared and removed: neither a line before the change nor that of last time counts."""
    stage.commit({**WAITING, **FEW})
    stage.play(60)
    before = stage.phases()
    stage.commit(dict.fromkeys(WAITING))
    stage.play(90)
    line = trailer_of(stage, "GPU6010")

    def is_refused(until_s: int) -> None:
        stage.lines.clear()
        stage.commit(dict.fromkeys(WAITING))
        stage.play(until_s)
        assert (trailer_of(stage, "GPU6010"), stage.phases()) == (line, before)

    stage.commit(WAITING)
    stage.commit({"README.md": "any"}, f"Before there is such a change\n\n{line}\n")
    stage.play(120)
    is_refused(150)
    stage.commit({"README.md": "it is meant"}, f"Remove them\n\n{line}\n")
    stage.play(240)
    assert stage.phases() == RUNNING
    stage.commit(WAITING)
    stage.play(300)
    is_refused(330)


def test_jobs_that_have_ended_and_a_few_others_are_removed_without_a_word(stage: Stage) -> None:
    stage.commit({**WAITING, **FEW})
    stage.play(60)
    stage.commit(dict.fromkeys(list(WAITING)[:2]))
    stage.play(120)
    assert stage.phases() == RUNNING | {"a/w2": "Queued"}
    assert stage.codes("refused") == []


@IN_GIT
def test_a_project_with_many_waiting_jobs_is_not_removed_without_a_word(stage: Stage) -> None:
    files = {f"c/projects/z/w{n}.yaml": job(f"w{n}", "z", gpus=4) for n in range(3)}
    files["c/projects/z/project.yaml"] = project("z", quota=0)
    stage.commit({**files, **FEW})
    stage.play(60)
    before = stage.phases()
    assert set(before) == {*RUNNING, "z/w0", "z/w1", "z/w2"}
    stage.commit(dict.fromkeys(files))
    stage.play(120)
    assert stage.phases() == before
    line = trailer_of(stage, "GPU6010")
    stage.commit({"README.md": "it is meant"}, f"Remove it\n\n{line}\n")
    stage.play(200)
    assert stage.phases() == RUNNING


def test_one_cluster_leaves_anothers_namespaces_records_and_runs_alone(stage: Stage) -> None:
    """The same files under another cluster's name, on the same API server: nothing of the first may change."""
    version = {ref: resource_version(body) for ref, body in stage.state().live.items() if ref.kind != "Node"}
    stage.commit({"c/cluster.yaml": CLUSTER.replace("name: one", "name: two")})
    stage.play(60)
    assert stage.codes("refused") == ["GPU6006", "GPU6006"]
    live = stage.state().live
    assert {ref: resource_version(live[ref]) for ref in version} == version
    assert labels_of(live[ObjectRef(*kinds.NAMESPACE, "", "gpu-a")])[names.CLUSTER_LABEL] == "one"


def test_adopting_does_not_take_another_clusters_namespace(stage: Stage) -> None:
    adopting = {f"c/projects/{p}/project.yaml": project(p, more=", adopt: true") for p in ("a", "b")}
    stage.commit({**adopting, "c/cluster.yaml": CLUSTER.replace("name: one", "name: two")})
    stage.play(60)
    assert stage.codes("refused") == ["GPU6006", "GPU6006"]
    assert stage.phases() == RUNNING


def test_two_clusters_with_other_prefixes_share_a_server(stage: Stage) -> None:
    """Each has the other's work as foreign: n1 has four GPUs, two are taken by the first."""
    other = CLUSTER.replace("name: one", "name: two") + "  namespacePrefix: two-\n"
    stage.commit({"c/cluster.yaml": other, "c/projects/b/j3.yaml": job("j3", "b", gpus=2)})
    stage.play(60)
    state = {(labels_of(b)[names.CLUSTER_LABEL], r.name[:2]) for r, b in stage.state().live.items() if r.kind == "Pod"}
    assert {("one", "j1"), ("one", "j2")} < state
    assert len(state) == 4
    assert stage.codes("refused", "differs") == []
    system = ObjectRef(*kinds.NAMESPACE, "", names.SYSTEM_NAMESPACE)
    assert names.CLUSTER_LABEL not in labels_of(stage.state().live[system])


def test_a_label_that_a_person_changed_on_our_namespace_is_put_back(stage: Stage) -> None:
    ref, body = stage.live("Namespace", "gpu-a")
    labels = {**labels_of(body), names.CLUSTER_LABEL: "two"}
    stage.cluster.update({**body, "metadata": {**body["metadata"], "labels": labels}})
    stage.play(40)
    assert labels_of(stage.state().live[ref])[names.CLUSTER_LABEL] == "one"
    assert stage.codes() == []


ANOTHER = """  - {name: q, nodes: [n5], gpusPerNode: 8, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}
"""


def test_nodes_that_are_otherwise_than_declared_are_told_and_used_as_they_are(stage: Stage) -> None:
    steps = [
        ({"GPU7050"}, CLUSTER.replace("[n1]", "[n1, n9]")),
        ({"GPU7053"}, CLUSTER.replace("gpusPerNode: 4", "gpusPerNode: 6")),
        ({"GPU7050", "GPU7052"}, CLUSTER.replace("[n1]", "[n9]")),
        ({"GPU7054"}, CLUSTER + ANOTHER),
        (set(), CLUSTER),
    ]
    stage.machines = Nobody()
    for number, (codes, cluster) in enumerate(steps):
        stage.commit({"c/cluster.yaml": cluster})
        told = len(stage.lines)
        stage.play(40 + 30 * number)
        assert {line["code"] for line in stage.lines[told:] if line["event"] == "differs"} == codes
        assert stage.phases() == RUNNING


def test_a_difference_is_told_once_and_resolved_when_it_is_right(stage: Stage) -> None:
    stage.machines = Nobody()
    stage.commit({"c/cluster.yaml": CLUSTER.replace("[n1]", "[n1, n9]")})
    stage.at(90, lambda: stage.commit({"c/cluster.yaml": CLUSTER}))
    stage.play(120)
    assert [e for e in stage.events() if e in {"differs", "resolved"}] == ["differs", "resolved"]


class Nobody:
    """Machines that nobody brings: nodes are what they are."""

    def provide(self, pools: object) -> None:
        """Nothing."""

    def define(self, declared: object) -> None:
        """Nothing."""


STRANGERS: dict[str, tuple[str, str, dict[str, object]]] = {
    "PersistentVolumeClaim": (
        ", volumes: [{newClaim: {size: 2Gi}, mountPath: /d}]", "pvc-new-0",
        {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    "Service": (
        ", expose: [{port: 80, via: service}]", "new", {"clusterIP": "None", "ports": [{"port": 1}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", STRANGERS)
def test_an_object_that_a_tenant_made_in_the_place_of_a_jobs_holds_that_job_alone(stage: Stage, kind: str) -> None:
    """It was overwritten where the server took that. gpuctl was not ready by it, for all teams."""
    stage.meters = meters = PrometheusMeters(useless_after_ms=0)
    stage.publisher = Direct(stage.cluster)
    more, name, spec = STRANGERS[kind]
    meta = {"name": name, "namespace": "gpu-a"}
    made = stage.cluster.create({"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec})
    stage.commit({"c/projects/a/new.yaml": job("new", "a", more=more), "c/projects/b/j3.yaml": job("j3", "b")})
    stage.play(120)
    assert stage.phases() == RUNNING | {"a/new": "Queued", "b/j3": "Running"}
    (waiting,) = [run for run in stage.state().runs if run.job.name == "new"]
    assert waiting.reason is not None
    told = reason_text(waiting.reason)
    assert told == f"{kind} gpu-a/{name}, which gpuctl did not create, has the name of an object of the job"
    status = read_status(stage.cluster, stage.clock).status
    assert (status.ready, [each.level for each in status.problems], meters.unready()) == (True, ["warning"], "")
    stage.cluster.delete(ref_of(made), uid(made), resource_version(made) if kind == "Service" else "")
    stage.play(220)
    assert stage.phases() == RUNNING | {"a/new": "Running", "b/j3": "Running"}


def test_no_run_is_paused_for_a_job_whose_service_is_another_object(stage: Stage) -> None:
    """Its Service was refused each minute, and what made way for it lost its work each minute."""
    spec = {"selector": {"app": "theirs"}, "ports": [{"port": 80, "name": "port-80"}]}
    meta = {"name": "new", "namespace": "gpu-a"}
    made = stage.cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=3), "c/projects/b/j2.yaml": None})
    stage.play(60)
    assert stage.phases() == {"a/j1": "Running", "b/big": "Running"}
    stage.commit({"c/projects/a/new.yaml": job("new", "a", more=", expose: [{port: 80, via: service}]")})
    stage.play(400)
    assert stage.phases() == {"a/j1": "Running", "a/new": "Queued", "b/big": "Running"}
    assert {str(run.job): run.starts for run in stage.state().runs} == {"a/j1": 1, "a/new": 0, "b/big": 1}
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CLUSTER_LABEL: "one", names.PROJECT_LABEL: "a"}
    stage.cluster.update({**made, "metadata": {**made["metadata"], "labels": labels}})
    stage.play(500)
    assert stage.phases() == {"a/j1": "Running", "a/new": "Running", "b/big": "Queued"}
    (_, service) = stage.live("Service", "new")
    assert (uid(service), service["spec"]["selector"][names.JOB_LABEL]) == (uid(made), "new")


def test_what_a_person_made_is_not_deleted_with_the_job_or_the_project(stage: Stage) -> None:
    claims = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    ports = {"ports": [{"port": 80, "name": "port-80", "targetPort": 80}]}
    made = [
        stage.cluster.create({
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "gpu-a"},
            "spec": spec,
        })
        for kind, name, spec in (("PersistentVolumeClaim", "pvc-new-0", claims), ("Service", "new", ports))
    ]
    more = ", volumes: [{newClaim: {size: 2Gi}, mountPath: /d}], expose: [{port: 80, via: service}]"
    stage.commit({"c/projects/a/new.yaml": job("new", "a", more=more)})
    stage.play(120)
    assert stage.phases() == RUNNING | {"a/new": "Queued"}
    stage.commit({"c/projects/a/new.yaml": None})
    stage.play(240)
    assert stage.phases() == RUNNING
    inventory = stage.state().ledgers[ProjectName("a")].inventory
    assert inventory.isdisjoint(map(ref_of, made))
    for each in made:
        stage.cluster.delete(ref_of(each), uid(each), "")


def test_a_role_binding_that_a_tenant_made_in_the_place_of_a_projects_is_no_trouble_of_others(stage: Stage) -> None:
    """A role of one that is there can't be changed. Who has the role `admin` in a namespace may make bindings there."""
    stage.meters = meters = PrometheusMeters(useless_after_ms=0)
    stage.publisher = Direct(stage.cluster)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    meta = {"name": "gpuctl-view", "namespace": "gpu-a"}
    subjects = [{"kind": "User", "name": "eve", "apiGroup": role["apiGroup"]}]
    version, kind = kinds.ROLE_BINDING
    stage.cluster.create({"apiVersion": version, "kind": kind, "metadata": meta, "roleRef": role, "subjects": subjects})
    access = project("a", more=", access: [{group: all, role: view}]")
    stage.commit({"c/projects/a/project.yaml": access, "c/projects/b/j3.yaml": job("j3", "b")})
    stage.play(120)
    status = read_status(stage.cluster, stage.clock).status
    assert [(each.level, each.place) for each in status.problems] == [("warning", "RoleBinding gpu-a/gpuctl-view")]
    assert (status.ready, meters.unready()) == (True, "")
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(160)
    assert stage.phases() == {"b/j2": "Running", "b/j3": "Running"}, "a removed job of that project held its GPUs on"


def test_where_gpuctl_has_no_right_to_network_policies_all_else_goes_on(stage: Stage) -> None:
    """Its ledger named the policies before the server refused them, and from then on nothing was read any more."""
    stage.through = withdrawn = Withdrawn(stage.cluster, kinds.NETWORK_POLICY)
    withdrawn.turn()
    stage.publisher = Direct(stage.cluster)
    closed = CLUSTER + "  security: {reachableFrom: [monitoring]}\n"
    stage.commit({"c/cluster.yaml": closed, "c/projects/a/j1.yaml": None, "c/projects/a/new.yaml": job("new", "a")})
    stage.play(50)
    assert stage.phases() == {"b/j2": "Running", "a/new": "Running"}
    status = read_status(stage.cluster, stage.clock).status
    places = [f"NetworkPolicy gpu-{project}/gpuctl-reachable-from" for project in "ab"]
    assert {(each.code, each.level, each.place) for each in status.problems} == {
        ("GPU7015", "error", place) for place in (*places, "")
    }
    assert not status.ready
    assert isinstance(stage, WithoutGit)
    compiled = compile_tree(stage.written.tree(stage.written.head()))
    assert compiled.declared is not None
    report = drift_report(compiled.declared, withdrawn, stage.clock)
    assert report.objects == ()  # and not that all policies are missing
    assert report.unread == ("GPU7015: gpuctl may not do that",)
    withdrawn.turn()
    stage.play(80)
    assert read_status(stage.cluster, stage.clock).status.ready
    report = drift_report(compiled.declared, withdrawn, stage.clock)
    assert (report.objects, report.refusals, report.unread) == ((), (), ())
    assert len(stage.cluster.list(kinds.NETWORK_POLICY).items) == 2


def test_where_gpuctl_has_no_right_to_autoscalers_one_job_waits_and_all_else_goes_on(stage: Stage) -> None:
    """It is merged in the folder of one team, and ended every cycle of all."""
    stage.through = withdrawn = Withdrawn(stage.cluster, kinds.AUTOSCALER)
    withdrawn.turn()
    more = ", type: inference, workers: 2, minWorkers: 1, scaling: {metric: load, target: 5}"
    new = {"c/projects/a/served.yaml": job("served", "a", more=more), "c/projects/b/j3.yaml": job("j3", "b")}
    stage.commit({**new, "c/projects/a/j1.yaml": None})
    stage.play(50)
    assert stage.phases() == {"b/j2": "Running", "b/j3": "Running", "a/served": "Queued"}
    (waiting,) = [run for run in stage.state().runs if run.job.name == "served"]
    assert waiting.reason is not None
    assert reason_text(waiting.reason).startswith("the API server refuses HorizontalPodAutoscaler gpu-a/served-")
    withdrawn.turn()
    stage.play(130)
    assert stage.phases()["a/served"] == "Running"
