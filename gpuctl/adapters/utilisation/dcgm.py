"""The metrics of DCGM exporter that gpuctl reads, and their labels. Values that can't be such a measurement are left
out.

Security: the exporter takes a GPU's `namespace` and `pod` from the kubelet's list of each container's devices, through
a socket of the node. A tenant writes neither that list nor these labels.

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
"""Each metric's gauge, and the metric's unit in units of a `Sample`: percent, ratio, and twice MiB."""
MOST_BYTES = 1 << 40
"""The most bytes of one GPU's memory. A larger value is no measurement, such as DCGM's mark for "not available"."""
_LONGEST_LABEL = 253


def sample_of(metric: str, labels: Mapping[str, object], at_ms: Instant, value: float) -> Sample | None:
    """One measurement; None if it is none, or if no pod has the GPU."""
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
