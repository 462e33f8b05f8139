"""`gpuctl schema`: the JSON Schema of a kind, as editors use it."""

from __future__ import annotations

import click

from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import print_json


@command("schema", examples=("gpuctl schema Job > job.schema.json", "gpuctl schema"))
@click.argument("kind", required=False)
def schema(kind: str | None) -> None:
    """Print the JSON Schema of declarations, or of an output.

    KIND is a kind of declaration; Declaration, which is one schema for all of them; Scenario; PlanReport, what
    `gpuctl plan -o json` prints; or Status, what `gpuctl status -o json` prints. Without it, all are printed by
    name.
    """
    from gpuctl.compile.jsonschema import any_kind, schemas  # noqa: PLC0415 - pydantic is imported only now
    from gpuctl.compile.scenario_v1 import ScenarioV1  # noqa: PLC0415
    from gpuctl.views import plan_form, status_form  # noqa: PLC0415

    others = {"Scenario": ScenarioV1.model_json_schema(), "PlanReport": plan_form.schema()}
    others["Status"] = status_form.schema()
    by_kind = {**schemas(), "Declaration": any_kind(), **others}
    named = {name.lower(): name for name in by_kind}
    if kind is None:
        print_json(by_kind)
    elif kind.lower() in named:
        print_json(by_kind[named[kind.lower()]])
    else:
        raise Failure("GPU9003", f"there is no kind {kind}", hint=f"name one of {', '.join(by_kind)}")
