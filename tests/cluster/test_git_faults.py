"""What Git may do to a process on a real cluster: no run changes that the declarations do not change, and it is told.

Afterwards, Git mended, a commit starts one job more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from controlplane.server import ControlPlane
from unattended import Process, Site, at_last, job, project, writes_of


@dataclass
class Scene:
    """The process and its cluster; the jobs of project b that run. Project a has one."""

    site: Site
    process: Process
    running: list[str]

    def objects(self) -> object:
        """All that matters of both projects' runs, so that a change of any is seen."""
        metas = [each["metadata"] for name in "ab" for each in self.site.jobs(name)]
        jobs = {meta["uid"]: meta["generation"] for meta in metas}
        return (jobs, self.site.pods("a"), self.site.pods("b"))


@pytest.fixture(scope="module")
def scene(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    site = Site(plane_with_gpuctl, tmp_path_factory.mktemp("git"), "git")
    try:
        site.commit(project("a", 8), project("b", 16), job("steady"), job("one", project="b"))
        process = site.start()
        site.await_pods("steady")
        site.await_pods("one", project="b")
        yield Scene(site, process, ["one"])
    finally:
        site.leave()


def is_away(site: Site) -> Callable[[], object]:
    away = site.folder / "away"
    shutil.move(site.copy.folder, away)
    return lambda: shutil.move(away, site.copy.folder)


def loses_its_branch(site: Site) -> Callable[[], object]:
    site.git("checkout", "-q", "-b", "spare")
    site.git("branch", "-D", "main")
    return lambda: site.git("checkout", "-q", "-b", "main")


def is_rewritten(site: Site) -> Callable[[], object]:
    site.git("commit", "-q", "--amend", "-m", "otherwise")
    return lambda: None


def is_without_history(site: Site) -> Callable[[], object]:
    """A shallow clone in the place of the repository, rewritten: what was applied is nowhere in it."""
    whole = site.folder / "whole"
    shutil.move(site.copy.folder, whole)
    site.git_at(site.folder, "clone", "-q", "--depth", "1", f"file://{whole}", str(site.copy.folder))
    site.git("commit", "-q", "--amend", "-m", "alone")
    return lambda: None


def breaks_one_project(site: Site) -> Callable[[], object]:
    site.commit({"c/a-steady.yaml": "kind: [\n"})
    return lambda: site.commit(job("steady"))


def is_empty(site: Site) -> Callable[[], object]:
    site.git("rm", "-q", "-r", ".")
    site.git("commit", "-q", "-m", "nothing")
    return lambda: site.git("revert", "--no-edit", "HEAD")


def is_elsewhere(site: Site) -> Callable[[], object]:
    site.git("mv", "c", "d")
    site.git("commit", "-q", "-m", "moved")
    return lambda: site.git("revert", "--no-edit", "HEAD")


def lost_its_cluster(site: Site) -> Callable[[], object]:
    site.commit({"c/cluster.yaml": None})
    return lambda: site.commit(site.files)


Break = Callable[[Site], Callable[[], object]]
"""Does it, and gives what mends it."""
STANDING: dict[Break, str] = {
    is_away: "GPU8004",
    loses_its_branch: "GPU8002",
    is_empty: "GPU8003",
    is_elsewhere: "GPU8003",
    lost_its_cluster: "GPU8009",
    breaks_one_project: "GPU8009",
}
"""What is wrong until it is mended; seen in the measurements too."""
PASSING: dict[Break, str] = {is_rewritten: "GPU8007", is_without_history: "GPU8007"}


@pytest.mark.parametrize("fault", [*STANDING, *PASSING], ids=lambda fault: fault.__name__)
def test_a_repository_that(fault: Break, scene: Scene) -> None:
    site, process = scene.site, scene.process
    before, told, audited = scene.objects(), len(process.lines()), site.plane.audit.count()
    mend = fault(site)
    code = {**STANDING, **PASSING}[fault]
    at_last(lambda: code in {line.get("code") for line in process.lines()[told:]}, site.logs)
    if fault in STANDING:
        at_last(lambda: process.total("gpuctl_problems", code) > 0, site.logs)
    time.sleep(1.5)
    assert scene.objects() == before
    assert writes_of(process.audited(audited)) == []
    mend()
    with_one_more(scene)


def test_a_broken_project_does_not_hold_up_the_others(scene: Scene) -> None:
    mend = breaks_one_project(scene.site)
    steady = scene.site.pods("a")
    with_one_more(scene, wrong=1)
    assert scene.site.pods("a") == steady
    mend()


def test_a_new_process_without_git_changes_nothing(scene: Scene) -> None:
    """As on another machine, without a clone: nothing says what is declared."""
    before = scene.objects()
    scene.process.end()
    mend = is_away(scene.site)
    audited = scene.site.plane.audit.count()
    scene.process = process = scene.site.start()
    at_last(lambda: process.total("gpuctl_problems", "GPU8012") > 0 if process.leads() else 0, scene.site.logs)
    time.sleep(1.5)
    assert scene.objects() == before
    assert writes_of(process.audited(audited)) == []
    mend()
    with_one_more(scene)


def with_one_more(scene: Scene, wrong: int = 0) -> None:
    """Commit a job to b: it comes to run, and what ran goes on."""
    before = scene.site.pods("b")
    new = f"job-{len(scene.running)}"
    scene.site.commit(job(new, project="b"))
    scene.running.append(new)
    after = scene.site.await_pods(*scene.running, project="b")
    assert {name: after[name] for name in before} == before
    scene.site.await_pods_ever(dict.fromkeys(scene.running, 1), "b")
    at_last(lambda: (scene.process.total("gpuctl_problems") > 0) == (wrong > 0), scene.site.logs)
