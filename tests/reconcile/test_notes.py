"""What is told beside the objects: starts and pauses with their reasons, refusals, and nothing of what stays."""

from __future__ import annotations

from pathlib import Path

from stage import BASE, Stage, job

from gpuctl.app.ports import Note
from gpuctl.k8s.kinds import CONFIG_MAP


def of_jobs(stage: Stage) -> list[Note]:
    """Without the events of the cluster's ledger, which tell how predictions ended."""
    return [note for note in stage.notes if note.regarding.kind != CONFIG_MAP[1]]


def told(notes: list[Note]) -> list[tuple[str, str, str]]:
    """(kind, name without the run's digest, reason) of each."""
    return [(note.regarding.kind, note.regarding.name.rpartition("-")[0], note.reason) for note in notes]


def test_starts_and_pauses_are_told_on_the_job(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
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
    (paused, admitted) = of_jobs(stage)
    assert (paused.reason, paused.type) == ("Reclaimed", "Normal")
    assert "b/m" in paused.message
    assert told([admitted]) == [("Job", "m", "Admitted")]


def test_what_the_server_refuses_is_a_warning_on_the_object(tmp_path: Path) -> None:
    def with_claim(size: str) -> dict[str, str | None]:
        volume = f", volumes: [{{newClaim: {{size: {size}}}, mountPath: /data}}]"
        return {"c/projects/a/v.yaml": job("v", "a", more=volume)}

    stage = Stage(tmp_path)
    stage.commit(BASE | with_claim("2Gi"))
    stage.play(20)
    stage.commit(with_claim("1Gi"))
    stage.play(60)
    told_of = {(note.regarding, note.uid, note.reason) for note in stage.notes if note.type == "Warning"}
    ref, live = stage.live("PersistentVolumeClaim", "pvc-v-0")
    assert told_of == {(ref, live["metadata"]["uid"], "Refused")}
    assert all("GPU7006" in note.message for note in stage.notes if note.type == "Warning")
