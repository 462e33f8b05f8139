"""(Declared, Schedule) -> Manifests: every object as it is wanted now, decisions included. Pure and byte-stable."""

from gpuctl.render.drafts import Drafts
from gpuctl.render.manifests import render

__all__ = ["Drafts", "render"]
