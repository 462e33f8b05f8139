"""The usual requests as placement uses them: a measure of fragmentation for each packed pool, and the worth of rests.

The worth is the same in all pools, so that places in several pools can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpuctl.engine.capacity.fragmentation import Fragmentation, Mix
from gpuctl.engine.capacity.prices import worth_of_rest
from gpuctl.model.ids import PoolName
from gpuctl.model.units import GpuMilli

MANY_FRACTIONS = 100
"""Fractions that must be known before the worth of rests counts: of few it is a guess."""


class RequestMix:
    """A mix for each packed pool, the fractions of all pools, and what follows from them.

    `worth` of 0 to 1000 free milli; () while too few fractions are known. It is taken over from `earlier` where the
    fractions are the same.
    """

    __slots__ = ("fractions", "measures", "worth")

    def __init__(
        self,
        mixes: Mapping[PoolName, Mix] = MappingProxyType({}),
        fractions: Mapping[GpuMilli, int] = MappingProxyType({}),
        earlier: RequestMix | None = None,
    ) -> None:
        self.measures = {name: Fragmentation(mix) for name, mix in mixes.items()}
        self.fractions = fractions
        self.worth: tuple[int, ...]
        if earlier is not None and earlier.fractions == fractions:
            self.worth = earlier.worth
        else:
            self.worth = worth_of_rest(fractions) if sum(fractions.values()) >= MANY_FRACTIONS else ()
