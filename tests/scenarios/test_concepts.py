"""The rules in docs/concepts.md: each example there is a scenario in short form, which is written out here and run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_scenarios import reported

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"
RULES = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]
EXAMPLES = [
    (rule.partition("\n")[0], example)
    for rule in RULES
    for example in re.findall(r"^```yaml\n(.*?)^```$", rule, flags=re.MULTILINE | re.DOTALL)
]
_V1 = {"apiVersion": "gpuctl.dev/v1"}
_DEFAULT_POOL = {"pool": {"nodes": {"n1": 4}}}


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=[rule for rule, _ in EXAMPLES])
def test_the_engine_keeps_to_the_rule(rule: str, example: str) -> None:
    report = reported(PAGE.with_name(f"{rule}.yaml"), written_out(rule, yaml.safe_load(example)))
    assert report.failed == ()
    assert report.stable
    assert report.outcomes, "an example expects something"


def test_a_simulation_sums_up_what_pauses_lost() -> None:
    (example,) = [example for rule, example in EXAMPLES if rule == "What a pause loses"]
    report = reported(PAGE.with_name("loses.yaml"), written_out("loses", yaml.safe_load(example)))
    lost = [(str(each.job), each.lost_ms, each.lost_milli) for each in report.transitions if each.lost_ms is not None]
    assert lost == [("a/train", 20 * 60_000, 4000)]
    assert report.lost_gpu_ms == 80 * 60_000


def test_each_rule_has_an_example() -> None:
    assert RULES
    assert [rule.partition("\n")[0] for rule in RULES if "```yaml" not in rule] == []


def written_out(why: str, short: dict[str, Any]) -> bytes:
    """The scenario file that an example stands for: its `scheduling`, pools, projects and jobs are documents there."""
    pools, scheduling = short.pop("pools", _DEFAULT_POOL), short.pop("scheduling", {})
    cluster = {"nodePools": [_pool(name, pool) for name, pool in pools.items()], "scheduling": scheduling}
    documents: list[dict[str, Any]] = [{**_V1, "kind": "Cluster", "metadata": {"name": "example"}, "spec": cluster}]
    for kind in ("Department", "Project"):
        named = short.pop(f"{kind.lower()}s", {})
        documents += [{**_V1, "kind": kind, "metadata": {"name": name}, "spec": spec} for name, spec in named.items()]
    given: dict[str, Any] = {"documents": documents + _jobs(short.pop("jobs", {}))}
    given |= {name: short.pop(name) for name in ("running", "queued", "nodes") if name in short}
    for event in short.get("when", []):
        if "apply" in event:
            event["apply"] = _jobs(event["apply"])
    head: dict[str, Any] = {**_V1, "kind": "Scenario", "metadata": {"name": "example"}, "why": why, "given": given}
    return yaml.safe_dump({**head, **short}, sort_keys=False, width=10_000).encode()


def _pool(name: str, pool: dict[str, Any]) -> dict[str, Any]:
    nodes = [{"name": node, "gpus": gpus} for node, gpus in pool["nodes"].items()]
    return {"gpuMemory": "32Gi", "sharing": "dra", **pool, "name": name, "nodes": nodes}


def _jobs(jobs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    named = [(*job.partition("/")[::2], spec) for job, spec in jobs.items()]
    return [
        {**_V1, "kind": "Job", "metadata": {"project": project, "name": name}, "spec": {"image": "train", **spec}}
        for project, name, spec in named
    ]
