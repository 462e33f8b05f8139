"""One order for one set of objects, so that equal inputs give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from gpuctl.model.ids import ObjectRef
from gpuctl.model.manifest import Manifest


def in_order(manifests: Sequence[Manifest], before: Sequence[ObjectRef] = ()) -> tuple[Manifest, ...]:
    """Sorted by reference. ValueError where two objects have one name: rendering gave it out twice.

    `before`: how most of them were sorted the last time. What lies in order already is sorted in one pass.
    """
    refs = list(map(attrgetter("ref"), manifests))
    found = dict(zip(refs, manifests, strict=True))
    if len(found) < len(refs):
        raise ValueError(f"{Counter(refs).most_common(1)[0][0]} is rendered twice")
    known = dict.fromkeys(filter(found.__contains__, before))
    return tuple(map(found.__getitem__, sorted([*known, *(found.keys() - known.keys())])))
