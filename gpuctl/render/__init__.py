"""(Declared, Schedule) -> Manifests: every object as it is wanted now, decisions included. Pure and byte-stable."""

from gpuctl.render.cache import RenderCache
from gpuctl.render.manifests import render

__all__ = ["RenderCache", "render"]
