"""The report's story on the embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import pytest
from serving import Scene
from yesterday import past_of

from gpuctl.adapters.dashboard.past import Past
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.demo import STORY, Demo, Ending, Stage
from gpuctl.app.inspect import live
from gpuctl.app.object_cache import ObjectCache
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.views.clusters import ClusterView, cluster_view
from gpuctl.wiring import EXAMPLE, example_cluster, sandbox


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
