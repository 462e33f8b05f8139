"""What `gpuctl install` prints, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpuctl.install import Installation, all_objects
from gpuctl.k8s import kinds
from gpuctl.views.yamltext import yaml_document

HERE = Path(__file__).parent / "install"
IMAGE = "registry.example.com/gpuctl:1"
CASES = {
    "https": Installation(image=IMAGE, repo="https://git.example.com/gpus.git", path="clusters/tr4858"),
    "ssh-guarded": Installation(
        image=IMAGE, repo="git@git.example.com:gpus.git", path="clusters/tr4858", branch="main", guard=True
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_manifests(case: str, golden: Callable[[Path, str], None]) -> None:
    stream = "".join(map(yaml_document, all_objects(CASES[case])))
    golden(HERE / f"{case}.yaml", stream)
    assert list(yaml.safe_load_all(stream)) == list(all_objects(CASES[case]))


def test_every_kind_that_is_read_may_be_read_and_nothing_may_be_all() -> None:
    for kind in kinds.OBSERVED:
        assert {"list", "watch"} <= set(kinds.VERBS[kind])
    assert not {"*", "get"} & {verb for kind, may in kinds.VERBS.items() if kind != kinds.LEASE for verb in may}


def test_an_open_prefix_has_no_fence() -> None:
    wanted = Installation(image=IMAGE, repo="https://git.example.com/gpus.git", path="c", namespace_prefix="")
    assert not [body for body in all_objects(wanted) if "Admission" in body["kind"]]
