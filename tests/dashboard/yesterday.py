"""The report's story as a history, with commits of an author whose texts are markup; team-a alone is measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from serving import Scene

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.dashboard.past import Past
from gpuctl.adapters.history.keeper import HistoryFile
from gpuctl.app.history import Facts
from gpuctl.model.decision import FairShare
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.history import HOUR_MS, Check, Commit, TakenUp
from gpuctl.model.ids import Revision
from gpuctl.model.state import Ledger
from gpuctl.model.utilisation import RunUse

LABELS = ("4.8", "4.9", "4.10")
EVIL = "<img src=x onerror=alert(1)>\x1b[31m\u202e{{ 7 * 7 }}"
COMMIT = Revision("c" * 40)


def past_of(scenes: Mapping[str, Scene], file: Path) -> tuple[Past, int]:
    """The report's story, a section every ten minutes, up to the end of half an hour; and when that is."""
    began_ms = scenes["4.8"].view.at_ms // HOUR_MS * HOUR_MS + HOUR_MS
    with closing(HistoryFile(file)) as keeper:
        keeper.note([
            Commit(revision=COMMIT, author=f"Eve {EVIL}", subject=f"more {EVIL}", written_ms=began_ms),
            TakenUp(revision=COMMIT, at_ms=began_ms),
            Check(
                revision=COMMIT, at_ms=began_ms + 9_000, took_ms=9_000, result="explained",
                predicted=("started: team-a/a-1-g",), differences=(f"team-a/x was not started: {EVIL}",),
            ),
        ])  # fmt: skip
        for second in range(0, 1_860, 60):
            scene = scenes[LABELS[min(second // 600, 2)]]
            keeper.offer(_facts(scene, began_ms + second * 1000))
            keeper.settle()
            assert not keeper.fault()
    now_ms = began_ms + 1_800_000
    return Past(file, VirtualClock(now_ms)), now_ms


def _facts(scene: Scene, at_ms: int) -> Facts:
    projects = scene.view.projects
    shares = [
        FairShare(
            project=each.name, domain=WHOLE_CLUSTER, quota_milli=each.allowances[WHOLE_CLUSTER].quota_milli,
            demand_milli=0, share_milli=3_000, allocated_milli=each.allocated_milli,
        )
        for each in projects
    ]  # fmt: skip
    return Facts(
        at_ms=at_ms,
        runs=tuple(job.run for job in scene.view.jobs),
        ledgers={each.name: Ledger(project=each.name, revision=COMMIT) for each in projects},
        shares=tuple(shares),
        nodes=scene.nodes,
        uses={
            (job.run.job, job.run.digest): RunUse(held_milli=job.gpu_milli, busy_milli=job.gpu_milli // 4)
            for job in scene.view.jobs
            if job.id.project == "team-a" and job.placement is not None
        },
    )
