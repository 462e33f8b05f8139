"""The usual requests of a pool as placement uses them: fragmentation, and the worth of rests."""

from __future__ import annotations

from gpuctl.engine.capacity.fragmentation import Fragmentation, Mix
from gpuctl.engine.capacity.prices import worth_of_rest
from gpuctl.model.units import WHOLE_GPU

MANY_FRACTIONS = 100
"""Fractions that must be known before the worth of rests counts: of few it is a guess."""


class RequestMix:
    """One mix and what follows from it. `worth` of 0 to 1000 free milli; () while too few fractions are known."""

    __slots__ = ("fragmentation", "worth")

    def __init__(self, mix: Mix) -> None:
        fractions: dict[int, int] = {}
        for (gpu, _), count in mix:
            if 0 < gpu < WHOLE_GPU:
                fractions[gpu] = fractions.get(gpu, 0) + count
        self.fragmentation = Fragmentation(mix)
        self.worth = worth_of_rest(fractions) if sum(fractions.values()) >= MANY_FRACTIONS else ()
