"""MIG profiles: the slices that a GPU can be cut into, by its memory.

A GPU's memory is cut in eighths and its cores in sevenths, so the eighth slice of one eighth has no cores: a GPU has
seven of those. The charge of a slice is the part of the GPU that it takes: 1000 divided by the number of such slices,
rounded down, so that all slices of a GPU together are never more than the GPU.
Source: NVIDIA MIG User Guide, "Supported MIG Profiles".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuctl.model.units import WHOLE_GPU, GpuMilli, MemBytes

_GIB: MemBytes = 1 << 30
_EIGHTH = 125
_NAME = re.compile(r"[1-7]g\.[1-9][0-9]{0,2}gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One kind of slice. `holds_milli`: its part of the GPU's memory; `per_gpu`: how many one GPU has."""

    name: str
    holds_milli: GpuMilli
    per_gpu: int

    @property
    def charge_milli(self) -> GpuMilli:
        """The charge for a worker on such a slice."""
        return WHOLE_GPU // self.per_gpu


def _profile(name: str, eighths: int, per_gpu: int) -> MigProfile:
    return MigProfile(name=name, holds_milli=eighths * _EIGHTH, per_gpu=per_gpu)


def _family(eighth: str, quarter: str, half: str) -> tuple[MigProfile, ...]:
    """The profiles of a GPU with seven slices of cores, by the memory in the names of its slices."""
    return (
        _profile(f"1g.{eighth}gb", 1, 7),
        _profile(f"1g.{quarter}gb", 2, 4),
        _profile(f"2g.{quarter}gb", 2, 3),
        _profile(f"3g.{half}gb", 4, 2),
    )


_FAMILIES: dict[int, tuple[MigProfile, ...]] = {
    24: (_profile("1g.6gb", 2, 4), _profile("2g.12gb", 4, 2)),
    40: _family("5", "10", "20"),
    80: _family("10", "20", "40"),
    141: _family("18", "35", "71"),
    180: _family("23", "45", "90"),
}
"""By nominal memory in GB: A30; A100 40 GB; A100 and H100 80 GB; H200; B200."""


def profiles_of(gpu_mem_bytes: MemBytes) -> tuple[MigProfile, ...]:
    """The profiles that a GPU of that memory can be cut into, smallest first; () if it can't be cut.

    The memory that a driver reports is a few percent below the nominal one.
    """
    for nominal, profiles in _FAMILIES.items():
        if abs(nominal * _GIB - gpu_mem_bytes) * 20 <= nominal * _GIB:
            return profiles
    return ()


def profile_named(name: str, gpu_mem_bytes: MemBytes) -> MigProfile | None:
    """The profile of that name on a GPU of that memory, or None."""
    return next((profile for profile in profiles_of(gpu_mem_bytes) if profile.name == name), None)


def slices_per_gpu(name: str, gpu_mem_bytes: MemBytes) -> int:
    """How many slices of a profile a GPU has; if its memory is unknown, the most that any GPU has."""
    known = profile_named(name, gpu_mem_bytes)
    if known is not None:
        return known.per_gpu
    counts = [profile.per_gpu for family in _FAMILIES.values() for profile in family if profile.name == name]
    return max(counts, default=1)


def least_charge_milli(name: str) -> GpuMilli:
    """The least charge for a slice of a profile of that name: its sevenths of the cores."""
    return int(name[0]) * WHOLE_GPU // 7


def is_profile_name(name: str) -> bool:
    """Whether a name has the form of a profile's name."""
    return _NAME.fullmatch(name) is not None
