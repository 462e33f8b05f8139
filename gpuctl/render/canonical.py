"""One order for one set of objects, so that equal inputs give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from gpuctl.model.ids import ObjectRef


def in_order(refs: Sequence[ObjectRef], before: Sequence[ObjectRef] = ()) -> list[int]:
    """The positions of these references in sorted order. ValueError if two are equal: rendering used a name twice.

    `before`: most of them in last time's order. References that are already in order are sorted in one pass.
    """
    places = dict(zip(refs, count()))
    if len(places) < len(refs):
        raise ValueError(f"{Counter(refs).most_common(1)[0][0]} is rendered twice")
    known = dict.fromkeys(filter(places.__contains__, before))
    return list(map(places.__getitem__, sorted([*known, *(places.keys() - known.keys())])))
