"""Fields of a job that can't be given together. They are read as written: any value may be a list or a mapping, which
can't be in a set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.compile.amounts import WrongValue, excludes, needs
from gpuctl.k8s.objects import items, text


def disagreements(data: Mapping[str, Any]) -> Iterator[WrongValue]:
    """All contradictions in a job's spec, each at the field to remove."""
    if data.get("gpuMemory") is not None and data.get("gpus", 0) not in (0, "0", None):
        yield excludes("gpus", "gpuMemory", at=("gpuMemory",), fix="keep one of them")
    fewest, workers = data.get("minWorkers"), data.get("workers", 1)
    if isinstance(fewest, int) and isinstance(workers, int) and fewest > workers >= 1:
        yield WrongValue("GPU2022", at=("minWorkers",), found=fewest, workers=workers)
    framework = data.get("framework")
    if framework is not None and data.get("type") == "inference":
        fix = "remove framework: the workers of an inference job do not know each other"
        yield excludes("framework", "type: inference", at=("framework",), fix=fix)
    if data.get("success", "all") != "all" and data.get("type") == "inference":
        fix = "remove success: an inference job never ends"
        yield excludes("success", "type: inference", at=("success",), fix=fix)
    yield from _names_taken_twice(data)
    if data.get("checkpointEvery") is not None and data.get("type") == "inference":
        fix = "remove checkpointEvery: an inference job has no work to go on with"
        yield excludes("checkpointEvery", "type: inference", at=("checkpointEvery",), fix=fix)
    sweep = data.get("sweep")
    if sweep is not None and data.get("type", "training") != "training":
        fix = "remove sweep, or write type: training"
        yield needs("sweep", "type: training", at=("sweep",), fix=fix)
    if isinstance(sweep, dict) and sweep.get("completions") is not None and workers != 1:
        fix = "write a matrix: JOB_COMPLETION_INDEX is the number of the worker in a job of several"
        yield excludes("sweep.completions", "workers", at=("sweep",), fix=fix)
    yield from _of_scaling(data, fewest, workers)
    yield from _of_restarts(data)
    if framework == "jax" and fewest is not None and fewest != workers:
        fix = "remove minWorkers: JAX does not go on without a worker"
        yield excludes("framework: jax", "minWorkers", at=("framework",), fix=fix)


def _of_scaling(data: Mapping[str, Any], fewest: object, workers: object) -> Iterator[WrongValue]:
    """Scaling on a job that is no service, or on a service with a fixed number of workers; `minWorkers: 0` without a
    metric that works at zero workers."""
    scaling = data.get("scaling")
    if scaling is None:
        if fewest == 0 and isinstance(fewest, int):
            fix = "write 1 or more; suspend: true stops a job, and a service with scaling may have no workers"
            yield WrongValue("GPU2018", fix=fix, at=("minWorkers",), found=0, rule="at least 1 without scaling")
        return
    if fewest == 0 and isinstance(scaling, dict) and scaling.get("of", "pods") == "pods":
        fix = "write `of: external` in scaling: pods that are not there have no metric"
        yield excludes("minWorkers: 0", "scaling by a metric of pods", at=("minWorkers",), fix=fix)
    if data.get("type", "training") != "inference":
        fix = "remove scaling, or write type: inference"
        yield needs("scaling", "type: inference", at=("scaling",), fix=fix)
    elif fewest is None or fewest == workers:
        fix = "write minWorkers and workers: the fewest and the most that it may have"
        yield needs("scaling", "fewer minWorkers than workers", at=("scaling",), fix=fix)


def _of_restarts(data: Mapping[str, Any]) -> Iterator[WrongValue]:
    """`retriesPerWorker` where the other workers can't wait for one, or where a worker is always started again."""
    if data.get("retriesPerWorker", 0) in (0, None):
        return
    field = "retriesPerWorker"
    if data.get("type", "training") == "inference":
        other, fix = "type: inference", "remove retriesPerWorker: a service's workers are always started again"
    elif data.get("framework") == "jax":
        fix = "write retries: all processes of JAX end once one has failed, so each worker takes one of the retries"
        other = "framework: jax"
    else:
        return
    yield excludes(field, other, at=(field,), fix=fix)


def _names_taken_twice(data: Mapping[str, Any]) -> Iterator[WrongValue]:
    """Sidecars with the name of an init container: all containers of a pod need different names."""
    taken, sidecars = {text(each, "name") for each in items(data, "initContainers")}, data.get("sidecars")
    for position, entry in enumerate(sidecars if isinstance(sidecars, list) else ()):
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"] in taken:
            yield WrongValue("GPU2021", at=("sidecars", position, "name"), found=entry["name"])
