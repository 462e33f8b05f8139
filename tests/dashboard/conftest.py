"""The report's story on the embedded cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import git
import pytest
from serving import Scene
from yesterday import past_of

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.dashboard.asking import Asking, InFolder
from gpuctl.adapters.dashboard.past import Past
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.demo import STORY, Demo, Ending, Stage
from gpuctl.app.inspect import live
from gpuctl.app.object_cache import ObjectCache
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.views.clusters import ClusterView, cluster_view
from gpuctl.wiring import EXAMPLE, example_cluster, sandbox

FILES = Path(__file__).parents[2] / "clusters/tr4858"


@pytest.fixture(scope="session")
def story(scenes: Mapping[str, Scene]) -> Mapping[str, ClusterView]:
    """What is shown at the end of each section of the report, by its number."""
    return {label: scene.view for label, scene in scenes.items()}


@pytest.fixture(scope="session")
def past(scenes: Mapping[str, Scene], tmp_path_factory: pytest.TempPathFactory) -> tuple[Past, int]:
    """The report's story, a section every ten minutes, up to the end of half an hour; and when that is."""
    return past_of(scenes, tmp_path_factory.mktemp("past") / "h.db")


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Scene]:
    """The cluster at the end of each section of the report, by its number."""
    folder, venue = tmp_path_factory.mktemp("story"), sandbox(EPOCH_MS)
    example = example_cluster()
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
            found[step.label] = Scene(view, cache.objects(), current.state.nodes)
    return found


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example at the end of the report's section 4.8, and a branch that raises a quota."""
    folder = tmp_path_factory.mktemp("whatif") / "repo"
    copy = WorkingCopy.create(folder)
    for file in FILES.rglob("*.yaml"):
        copy.write(f"c/{file.relative_to(FILES)}", file.read_bytes())
    copy.commit("first", 1_596_000_000_000)
    with git.Repo(folder) as repo:
        repo.create_head("more")
        repo.heads["more"].checkout()
        project = folder / "c/projects/team-b/project.yaml"
        project.write_text(re.sub(r"quota: \d+", "quota: 3", project.read_text()))
        repo.index.add(["c/projects/team-b/project.yaml"])
        repo.index.commit("more for b", skip_hooks=True)
        repo.heads["main"].checkout()
    return folder


@pytest.fixture
def asking(repository: Path, scenes: Mapping[str, Scene]) -> Asking:
    scene = scenes["4.8"]
    return Asking(InFolder(repository / "c"), lambda: scene.objects, VirtualClock(scene.view.at_ms))
