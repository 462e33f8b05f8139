"""What is told beside the objects: starts and pauses with their reasons, refusals, and nothing of what stays."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from stage import BASE, Stage, WithoutGit, job, project

from gpuctl.app.notes import MOST_WAITING
from gpuctl.app.ports import Note
from gpuctl.k8s.kinds import CLAIM, CONFIG_MAP
from gpuctl.k8s.names import MESSAGE_ANNOTATION
from gpuctl.k8s.objects import uid
from gpuctl.model.ids import JobId, ObjectRef, ProjectName


def of_jobs(stage: Stage) -> list[Note]:
    """Without the events of the cluster's ledger, which tell how predictions ended."""
    return [note for note in stage.notes if note.regarding.kind != CONFIG_MAP[1]]


def told(notes: list[Note]) -> list[tuple[str, str, str]]:
    """(kind, name without the run's digest, reason) of each."""
    return [(note.regarding.kind, note.regarding.name.rpartition("-")[0], note.reason) for note in notes]


def test_starts_and_pauses_are_told_on_the_job(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.commit(BASE)
    stage.play(20)
    assert sorted(told(of_jobs(stage))) == [("Job", "j1", "Admitted"), ("Job", "j2", "Admitted")]
    assert {note.uid for note in of_jobs(stage)} == {
        live["metadata"]["uid"] for _, live in map(stage.live, ("Job",) * 2, ("j1", "j2"))
    }
    assert all(note.message.startswith("on n1: ") for note in of_jobs(stage))
    del stage.notes[:]
    stage.play(60)
    assert of_jobs(stage) == []
    stage.commit({f"c/projects/a/k{number}.yaml": job(f"k{number}", "a") for number in range(2)})
    stage.play(120)
    del stage.notes[:]
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(180)
    (paused, admitted) = (note for note in of_jobs(stage) if note.reason != "Waiting")
    assert [note.regarding.name.rpartition("-")[0] for note in waiting(stage)] == [
        "m",
        paused.regarding.name.rpartition("-")[0],
    ]
    assert (paused.reason, paused.type) == ("Reclaimed", "Normal")
    assert "b/m" in paused.message
    assert told([admitted]) == [("Job", "m", "Admitted")]


def test_what_the_server_refuses_is_a_warning_on_the_object(tmp_path: Path) -> None:
    def with_claim(size: str) -> dict[str, str | None]:
        volume = f", volumes: [{{newClaim: {{size: {size}}}, mountPath: /data}}]"
        return {"c/projects/a/v.yaml": job("v", "a", more=volume)}

    stage = WithoutGit(tmp_path)
    stage.commit(BASE | with_claim("2Gi"))
    stage.play(20)
    stage.commit(with_claim("1Gi"))
    stage.play(60)
    told_of = {(note.regarding, note.uid, note.reason) for note in stage.notes if note.type == "Warning"}
    ref, live = stage.live("PersistentVolumeClaim", "pvc-v-0")
    assert told_of == {(ref, live["metadata"]["uid"], "Refused")}
    assert all("GPU7006" in note.message for note in stage.notes if note.type == "Warning")


def waiting(stage: Stage) -> list[Note]:
    return [note for note in stage.notes if note.reason == "Waiting"]


def test_why_a_job_waits_is_told_once_and_stands_on_its_object(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.commit(BASE | {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(4)})
    stage.play(30)
    live = {job.name: body for job, body in ((r.job, stage.live("Job", r.job.name)[1]) for r in stage.state().runs)}
    notes = {name: body["metadata"]["annotations"] for name, body in live.items()}
    suspended = {name for name, body in live.items() if body["spec"]["suspend"]}
    assert len(suspended) == 2
    assert {name for name, each in notes.items() if MESSAGE_ANNOTATION in each} == suspended
    (first, second) = waiting(stage)
    assert {first.uid, second.uid} == {live[name]["metadata"]["uid"] for name in suspended}
    assert {first.message, second.message} == {notes[name][MESSAGE_ANNOTATION] for name in suspended}
    stage.play(90)
    assert len(waiting(stage)) == 2  # another process repeats nothing
    stage.at(95, lambda: stage.cluster.finish(JobId(ProjectName("b"), "j2"), 0))
    stage.play(150)
    running = next(body for _, body in (stage.live("Job", name) for name in suspended) if not body["spec"]["suspend"])
    assert MESSAGE_ANNOTATION not in running["metadata"]["annotations"]


def test_another_kind_of_reason_is_told_and_another_number_in_it_is_not(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.commit(BASE | {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(3)})
    stage.play(30)
    (first,) = waiting(stage)
    stage.commit({"c/projects/a/project.yaml": project("a", more=", limit: 3")})
    stage.play(60)
    codes = {note.message for note in waiting(stage)}
    assert len(codes) == len(waiting(stage)) <= 2
    assert first in waiting(stage)
    version = stage.version()
    stage.play(120)
    assert stage.version() == version


def test_a_sentence_that_a_person_changes_is_put_back_once(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.commit(BASE | {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(3)})
    stage.play(30)
    (name,) = [r.job.name for r in stage.state().runs if stage.live("Job", r.job.name)[1]["spec"]["suspend"]]
    _, body = stage.live("Job", name)
    said = body["metadata"]["annotations"][MESSAGE_ANNOTATION]
    forged = deepcopy(dict(body))
    forged["metadata"]["annotations"][MESSAGE_ANNOTATION] = "soon"
    del forged["metadata"]["resourceVersion"]
    stage.cluster.update(forged)
    assert stage.live("Job", name)[1]["metadata"]["annotations"][MESSAGE_ANNOTATION] == "soon"
    del stage.notes[:]
    stage.play(60)
    assert stage.live("Job", name)[1]["metadata"]["annotations"][MESSAGE_ANNOTATION] == said
    assert waiting(stage) == []


def test_thousands_that_wait_bring_few_events_and_none_of_another_kind_is_lost(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.commit(BASE | {f"c/projects/a/w{n}.yaml": job(f"w{n}", "a") for n in range(60)})
    seen: list[list[Note]] = []
    stage.recorder = Kept(seen)
    stage.play(30)
    assert max(sum(note.reason == "Waiting" for note in notes) for notes in seen) == MOST_WAITING
    for notes in seen:
        reasons = [note.reason == "Waiting" for note in notes]
        assert reasons == sorted(reasons, reverse=True), "those that may be dropped come first"
    waits = [r.job.name for r in stage.state().runs if stage.live("Job", f"{r.job.name}-")[1]["spec"]["suspend"]]
    assert len(waits) == 58
    for name in waits:
        assert MESSAGE_ANNOTATION in stage.live("Job", f"{name}-")[1]["metadata"]["annotations"]


def test_the_many_jobs_of_one_team_keep_no_event_of_another_out(tmp_path: Path) -> None:
    """Of 20 in a cycle all were of the namespace whose name comes first."""
    stage = WithoutGit(tmp_path)
    many = {f"c/projects/a/w{n}.yaml": job(f"w{n}", "a", 4) for n in range(60)}
    stage.commit(BASE | many | {"c/projects/b/w.yaml": job("w", "b", 4)})
    seen: list[list[Note]] = []
    stage.recorder = Kept(seen)
    stage.play(30)
    (first,) = [notes for notes in seen if sum(note.reason == "Waiting" for note in notes) == MOST_WAITING][:1]
    assert {note.regarding.namespace for note in first} == {"gpu-a", "gpu-b"}


class Kept:
    """A recorder that keeps what each cycle told."""

    def __init__(self, seen: list[list[Note]]) -> None:
        self._seen = seen

    def record(self, notes: Sequence[Note]) -> None:
        self._seen.append(list(notes))


def test_a_claim_that_a_person_deleted_is_told_and_that_it_is_made_anew(tmp_path: Path) -> None:
    """The job's data is gone, and it was made again without a word."""
    stage = WithoutGit(tmp_path)
    volume = ", volumes: [{newClaim: {size: 1Gi}, mountPath: /data}]"
    stage.commit({**BASE, "c/projects/a/v.yaml": job("v", "a", more=volume)})
    stage.play(30)
    assert stage.codes() == []
    claim = ObjectRef(*CLAIM, "gpu-a", "pvc-v-0")
    before = uid(stage.state().live[claim])
    stage.at(40, lambda: stage.cluster.delete(claim, before, ""))
    stage.at(50, lambda: stage.commit({"c/projects/a/v.yaml": job("v", "a", more=volume + ", suspend: true")}))
    stage.play(120)
    assert uid(stage.state().live[claim]) != before
    ending, line, over = [line for line in stage.lines if "code" in line]
    assert (ending["event"], ending["code"], ending["level"]) == ("differs", "GPU7062", "warning")
    assert ending["message"] == f"{claim} of a/v was deleted; its data is gone once no pod uses it"
    assert (over["event"], over["code"]) == ("resolved", "GPU7062")
    assert (line["event"], line["code"], line["level"], line["object"]) == ("emptied", "GPU7061", "warning", str(claim))
    (note,) = [note for note in stage.notes if note.reason == "Emptied"]
    assert (note.regarding.kind, note.type) == ("Job", "Warning")
    assert note.message == f"{claim} of a/v was gone and is made anew, empty"
    stage.lines.clear()
    stage.play(150)
    assert stage.codes() == []
