"""The report's story on the embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from scenes import scenes_of_the_story, write_repository
from serving import Scene
from yesterday import past_of

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.dashboard.asking import Asking, InFolder
from gpuctl.adapters.dashboard.past import Past
from gpuctl.views.clusters import ClusterView


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
    return scenes_of_the_story(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example at the end of the report's section 4.8, and a branch that raises a quota."""
    folder = tmp_path_factory.mktemp("whatif") / "repo"
    write_repository(folder)
    return folder


@pytest.fixture
def asking(repository: Path, scenes: Mapping[str, Scene]) -> Asking:
    scene = scenes["4.8"]
    return Asking(InFolder(repository / "c"), lambda: scene.objects, VirtualClock(scene.view.at_ms))
