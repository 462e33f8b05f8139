"""One order for one set of objects, so that equal inputs give equal bytes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from gpuctl.model.manifest import Manifest


def in_order(manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """Sorted by reference. ValueError where two objects have one name: rendering gave it out twice."""
    ordered = tuple(sorted(manifests, key=lambda manifest: manifest.ref))
    for one, following in pairwise(ordered):
        if one.ref == following.ref:
            raise ValueError(f"{one.ref} is rendered twice")
    return ordered
