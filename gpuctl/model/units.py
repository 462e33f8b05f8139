"""Units: amounts are plain integers; the unit is in the field's name and in these aliases. `None` as a limit: no limit.

GPUs are milli-GPU (1000 = one device), CPU is milli-CPU, memory is bytes, time is milliseconds since the Unix epoch.
"""

from __future__ import annotations

from typing import TypeAlias

GpuMilli: TypeAlias = int
CpuMilli: TypeAlias = int
MemBytes: TypeAlias = int
Instant: TypeAlias = int
DurationMs: TypeAlias = int

WHOLE_GPU: GpuMilli = 1000
"""Milli-GPU in one device."""

MOST_NODE_GPUS = 1024
"""The most GPUs of a node. GPUs are handled one by one, so a larger number is not believed; no hardware comes near."""


def format_gpus(gpu_milli: GpuMilli) -> str:
    """Milli-GPU as people write GPUs: 4000 -> "4", 500 -> "0.5"."""
    whole, rest = divmod(abs(gpu_milli), WHOLE_GPU)
    sign = "-" if gpu_milli < 0 else ""
    return f"{sign}{whole}" if not rest else f"{sign}{whole}.{rest:03d}".rstrip("0")


def count_gpus(gpu_milli: GpuMilli) -> str:
    """Milli-GPU with the noun: 1000 -> "1 GPU", 500 -> "0.5 GPUs"."""
    return f"{format_gpus(gpu_milli)} {'GPU' if gpu_milli == WHOLE_GPU else 'GPUs'}"
