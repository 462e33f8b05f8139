"""The report's story on the embedded cluster, as tests and pictures of the dashboard show it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from functools import partial
from importlib import resources
from pathlib import Path

from serving import Scene

from gpuctl.adapters.files import read_tree
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.demo import STORY, Demo, Ending, Stage
from gpuctl.app.inspect import Live, live
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.overview import overview_of
from gpuctl.compile import compile_tree
from gpuctl.engine import schedule
from gpuctl.model.units import Instant
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.views.clusters import ClusterView, cluster_view
from gpuctl.wiring import EXAMPLE, example_cluster, sandbox

FILES = Path(__file__).parents[2] / "clusters/tr4858"


def scenes_of_the_story(folder: Path) -> Mapping[str, Scene]:
    """The cluster at the end of each section of the report, by its number. `folder`: where the story's commits are."""
    venue, example = sandbox(EPOCH_MS), example_cluster()
    stage = Stage(
        example=lambda path: example.joinpath(*path.split("/")).read_bytes(),
        workshop=WorkingCopy.create(folder / "repository", "main"),
        source=GitSource(str(folder / "repository"), EXAMPLE, "main", folder / "clones"),
        venue=venue,
    )
    found = {}
    for step in Demo(resources.files("gpuctl.app").joinpath(STORY).read_bytes(), stage).steps():
        if isinstance(step, Ending):
            current = live(venue.cluster)
            view = cluster_view(current.state, current.jobs, venue.time.now_ms())
            cache = ObjectCache(venue.cluster)
            cache.refresh()
            found[step.label] = Scene(
                view, cache.objects(), current.state.nodes, _published(folder, current, view.at_ms)
            )
    return found


def _published(folder: Path, current: Live, at_ms: Instant) -> ClusterView:
    """The view with what a controller publishes."""
    declared = compile_tree(read_tree(str(folder / "repository" / EXAMPLE))).declared
    assert declared is not None
    overview = overview_of(declared, current.state, schedule(declared, current.state, at_ms), {})
    return cluster_view(current.state, current.jobs, at_ms, overview=overview)


def write_repository(folder: Path) -> None:
    """The example at the end of the report's section 4.8, and a branch that raises a quota."""
    copy = WorkingCopy.create(folder)
    for file in FILES.rglob("*.yaml"):
        copy.write(f"c/{file.relative_to(FILES)}", file.read_bytes())
    copy.commit("first", 1_596_000_000_000)
    run = partial(subprocess.run, cwd=folder, check=True)
    run(["git", "switch", "-q", "-c", "more"])
    project = "c/projects/team-b/project.yaml"
    copy.write(project, re.sub(rb"quota: \d+", b"quota: 3", (folder / project).read_bytes()))
    copy.commit("more for b", 1_596_000_000_000)
    run(["git", "switch", "-q", "main"])
