"""The table of kinds: what is rendered can be read, written, and deleted at a moment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuctl.k8s.kinds import CLUSTER_SCOPED, KINDS, OBSERVED, RENDERED, VERBS, Kind, KindInfo

GOLDEN = Path(__file__).parents[2] / "golden"


def rendered() -> set[Kind]:
    """The kinds in all golden manifests."""
    bodies = (body for path in sorted(GOLDEN.glob("*/expected.yaml")) for body in yaml.safe_load_all(path.read_text()))
    return {(body["apiVersion"], body["kind"]) for body in bodies if body}


def test_every_kind_that_is_rendered_is_observed_applied_and_pruned_at_a_moment_of_its_own() -> None:
    made = rendered()
    assert made <= RENDERED
    for kind in made:
        assert KINDS[kind].observed
        assert {"list", "watch", "create", "patch"} <= {*VERBS[kind]}
    ranks = [KINDS[kind].prune_rank for kind in RENDERED]
    assert sorted(ranks) == list(range(1, len(ranks) + 1))


def test_what_a_namespace_holds_is_pruned_before_it() -> None:
    last = KINDS["v1", "Namespace"].prune_rank
    inside = RENDERED - CLUSTER_SCOPED - {("v1", "ConfigMap")}
    assert all(KINDS[kind].prune_rank < last for kind in inside)
    assert all(KINDS[kind].prune_rank > last for kind in RENDERED if KINDS[kind].own_namespace)


def test_a_kind_that_is_deleted_without_a_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="widgets are deleted and have no prune_rank"):
        KindInfo(plural="widgets", observed=True, writes=("create", "delete"))


def test_a_kind_of_which_nothing_is_read_or_written_has_no_verbs() -> None:
    assert not {"get", "delete"} & {*VERBS["v1", "Pod"]}
    assert ("v1", "Secret") not in VERBS
    assert {*OBSERVED} <= VERBS.keys()


def test_only_what_gpuctl_makes_is_read_by_a_label() -> None:
    """A tenant takes labels off what is its own. Off a StatefulSet of a LeaderWorkerSet, one label had the run's pods
    taken for others', and its GPUs counted twice."""
    assert [kind for kind, info in KINDS.items() if info.scope.label_selector and not info.writes] == []
