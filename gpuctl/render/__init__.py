"""(Declared, Schedule) -> Manifests: every object as it is wanted now, decisions included. Pure and byte-stable."""

from gpuctl.render.manifests import render

__all__ = ["render"]
