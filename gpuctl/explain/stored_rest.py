"""A cluster at rest as bytes, for a later plan from the same base.

The keeper of the bytes must make sure that gpuctl wrote them, for these declarations and nodes.
"""

from __future__ import annotations

from dataclasses import fields, replace

from gpuctl.engine import EngineCache
from gpuctl.explain.forecast import forecasts
from gpuctl.explain.rest import Rest
from gpuctl.model.declared import Declared
from gpuctl.model.stored import dumped, loaded

_KEPT = tuple(each.name for each in fields(Rest) if each.name not in {"declared", "engine_cache"})


def with_forecasts(rest: Rest) -> Rest:
    """The same, with the forecasts of all jobs that wait."""
    return replace(rest, forecasts=forecasts(rest, rest.waiting.keys()))


def stored(rest: Rest) -> bytes:
    """The bytes of a cluster at rest, without the declarations and the engine's cache: with known forecasts it is not
    needed."""
    return dumped([getattr(rest, name) for name in _KEPT])


def restored(body: bytes, declared: Declared) -> Rest | None:
    """The cluster at rest in these bytes; None for any others."""
    values = loaded(body, ("model",))
    if not isinstance(values, list) or len(values) != len(_KEPT):
        return None
    return Rest(declared=declared, engine_cache=EngineCache(), **dict(zip(_KEPT, values, strict=True)))
