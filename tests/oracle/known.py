"""The families in which the engine is known to disagree with the rules: why, and worlds in which it does today.

The list can only shrink. A disagreement of another family fails the test, and so does a family that none of its
recorded worlds shows any more: then the engine has learned it, and its entry goes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """A family: the rule that is broken, and the seeds of worlds or histories that show it.

    `is_open`: DESIGN does not say which of the two is right; the oracle goes by the GPUs that are lost.
    """

    why: str
    worlds: tuple[int, ...] = ()
    histories: tuple[int, ...] = ()
    is_open: bool = False


_PRICE = {
    "dear: what follows": Known(
        why="4.5: the price counts what a victim's restart would displace.",
        worlds=(7000542, 11004824),
    ),
    "dear: another set": Known(
        why="4.5: as few GPUs as possible: another set of the same kind loses fewer.",
        worlds=(11000229, 11004758),
    ),
    "dear: a pool that is listed later": Known(
        why="4.6: pools in the order that is listed, even if fewer GPUs would be lost in a later one.",
        worlds=(1243,),
        is_open=True,
    ),
}

_CONDUCT = {
    "within share first": Known(
        why="4.3: a job above its project's share starts only when no job within share could use the GPUs.",
        worlds=(5001741, 7002423),
    ),
    "illegal: no right": Known(
        why="4.4, departments: whether a department is within its guarantee with what its other projects borrow.",
        worlds=(7004779, 5005547),
        histories=(7000667,),
    ),
    "paused in vain": Known(
        why="4.5: the beneficiary of every pause runs in the end; a job that waited takes its place by guarantee.",
        worlds=(5001493,),
        histories=(7003424,),
    ),
    "stopped twice": Known(
        why="4.5: nothing is paused twice for one change.",
        worlds=(7006433,),
        histories=(7004662,),
    ),
    "no rest: late": Known(
        why="After a change no more than three schedules decide something new.",
        histories=(7000099, 7000168),
    ),
}

KNOWN: dict[str, Known] = _PRICE | _CONDUCT
