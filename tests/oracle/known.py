"""The families in which the engine is known to disagree with the rules: why, and worlds in which it does today.

The list can only shrink. A disagreement of another family fails the test, and so does a family that none of its
recorded worlds shows any more: then the engine has learned it, and its entry goes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """A family: the rule that is broken, and the seeds of worlds or histories that show it."""

    why: str
    worlds: tuple[int, ...] = ()
    histories: tuple[int, ...] = ()


KNOWN: dict[str, Known] = {
    "paused in vain": Known(
        why="4.5: the beneficiary of every pause runs in the end; a job that waited takes its place by guarantee.",
        histories=(7004950,),
    ),
    "stopped twice": Known(
        why="4.5: nothing is paused twice for one change.",
        histories=(7003476,),
    ),
}
