"""The composition root: builds adapters and hands them to the verbs. Only commands import this, when they run."""

from gpuctl.wiring.controller import IN_MEMORY, Follow, Target, reconcile
from gpuctl.wiring.reading import (
    checkout,
    clock,
    compared_revisions,
    console,
    forge,
    forge_number,
    lacking,
    looking,
    new_repository,
    now_ms,
    reading_embedded,
    removal,
    rolled_back,
    scenario_reader,
)
from gpuctl.wiring.stages import EXAMPLE, blueprint, cluster_bench, demo, example_cluster, example_policies, sandbox

__all__ = [
    "EXAMPLE",
    "IN_MEMORY",
    "Follow",
    "Target",
    "blueprint",
    "checkout",
    "clock",
    "cluster_bench",
    "compared_revisions",
    "console",
    "demo",
    "example_cluster",
    "example_policies",
    "forge",
    "forge_number",
    "lacking",
    "looking",
    "new_repository",
    "now_ms",
    "reading_embedded",
    "reconcile",
    "removal",
    "rolled_back",
    "sandbox",
    "scenario_reader",
]
