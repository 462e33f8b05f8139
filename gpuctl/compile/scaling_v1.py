"""The public form of scaling by load: part of `spec_v1`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gpuctl.compile import amounts
from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import LabelKey, LabelValue, Spec, matching


def _target(value: Any) -> int:
    """A metric's amount in thousandths of its unit; refuses zero."""
    milli = amounts.cpu(value)
    if not milli:
        raise WrongValue("GPU2018", found=str(value), rule="it must be more than zero")
    return milli


_NUMBER = {"type": "number", "exclusiveMinimum": 0, "maximum": amounts.MOST_CPUS}
Target = Annotated[
    int,
    PlainValidator(_target),
    WithJsonSchema({"anyOf": [_NUMBER, {"type": "string", "pattern": r"^[0-9]+(m|\.[0-9]{1,3})?$"}]}),
]
MetricName = Annotated[
    str,
    Field(max_length=200),
    matching(r"[a-zA-Z_:][a-zA-Z0-9_:.-]*", "the name of a metric: http_requests_per_second"),
]


FewestWorkers = Annotated[int, Field(ge=0)]


class Scaling(Spec):
    """By what the number of a service's workers follows its load."""

    metric: MetricName = Field(description="A metric of the cluster's metrics API, which Prometheus' adapter serves.")
    of: Literal["pods", "external"] = Field(
        "pods", description="What the metric is of. pods: each of the service's. external: something else, as a queue."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        {}, max_length=20, description="Labels of the series that count. Default: all of that metric."
    )
    target: Target = Field(description="How much of it each worker is to have: 20, or 0.8.")
