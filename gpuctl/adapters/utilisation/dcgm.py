"""The metrics of DCGM exporter that are read, and their labels. What can't be such a measurement is left out.

The exporter takes `namespace` and `pod` of a GPU from the kubelet's list of what each container was given, by a socket
of the node. A tenant writes neither that list nor these labels.

Source: NVIDIA/dcgm-exporter, etc/default-counters.csv, internal/pkg/rendermetrics/render_metrics.go and
internal/pkg/transformation/kubernetes.go, 4.x up to commit d5e5f51, which renames `Hostname` to `hostname`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from gpuctl.model.units import WHOLE_GPU, Instant
from gpuctl.model.utilisation import Gauge, Sample

METRICS: Mapping[str, tuple[Gauge, int]] = {
    "DCGM_FI_DEV_GPU_UTIL": (Gauge.BUSY, 10),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (Gauge.ACTIVE, 1000),
    "DCGM_FI_DEV_FB_USED": (Gauge.USED, 1 << 20),
    "DCGM_FI_DEV_FB_FREE": (Gauge.FREE, 1 << 20),
}
"""Each metric with its gauge, and the unit of it in those of a `Sample`: percent, ratio, and twice MiB."""
MOST_BYTES = 1 << 40
"""Of the memory of one GPU. What says more is no measurement, as is DCGM's mark for "not available"."""
_LONGEST_LABEL = 253


def sample_of(metric: str, labels: Mapping[str, object], at_ms: Instant, value: float) -> Sample | None:
    """One measurement; None for what is none, or is of a GPU that no pod has."""
    known = METRICS.get(metric)
    if known is None or not isfinite(value) or value < 0:
        return None
    gauge, unit = known
    most = WHOLE_GPU if gauge in {Gauge.BUSY, Gauge.ACTIVE} else MOST_BYTES
    if value > most / unit:
        return None
    namespace, pod = _text(labels, "namespace"), _text(labels, "pod")
    host = _text(labels, "Hostname") or _text(labels, "hostname")
    gpu = _text(labels, "UUID") or f"{host}/{_text(labels, 'gpu')}"
    if not namespace or not pod or gpu == "/":
        return None
    device = f"{gpu}/{_text(labels, 'GPU_I_ID')}"
    return Sample(gauge, namespace, pod, device, at_ms, round(value * unit))


def _text(labels: Mapping[str, object], name: str) -> str:
    found = labels.get(name, "")
    return found if isinstance(found, str) and len(found) <= _LONGEST_LABEL else ""
