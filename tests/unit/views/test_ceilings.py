"""The ceilings of a ResourceQuota in gpuctl's words."""

from __future__ import annotations

from gpuctl.views.ceilings import ceiling_changes


def quota(**hard: str) -> dict[str, object]:
    return {"spec": {"hard": {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}}}


def test_gpus_come_first_and_no_key_of_kubernetes_is_named() -> None:
    slices = "requests_nvidia_com__mig-3g_20gb"
    before = quota(pods="1000", requests_nvidia_com__gpu="8", count__jobs_batch="1000", **{slices: "2"})
    after = quota(pods="1500", requests_nvidia_com__gpu="6", count__jobs_batch="1000")
    assert list(ceiling_changes(before, after)) == [
        "8 -> 6 GPUs by count", "2 -> any number MIG slices 3g.20gb", "1000 -> 1500 pods",
    ]  # fmt: skip
    assert list(ceiling_changes(after, after)) == []


def test_a_ceiling_of_another_version_has_its_own_name() -> None:
    assert list(ceiling_changes(quota(), quota(count__widgets="1"))) == ["any number -> 1 count/widgets"]
