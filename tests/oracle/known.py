"""The families in which the engine is known to disagree with the rules: why, and worlds in which it does today.

Any other disagreement fails the test, and so does a recorded one that is none any more: then the engine has learned it,
and it goes from the list. One comes only with a seed that was not looked at before.
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
    "stopped twice": Known(
        why="4.5: nothing is paused twice for one change. If the run were left alone, a job would have no place; or it "
        "lost its node, and starts again where it is stopped for another job.",
        worlds=(742, 9002585, 9012821),
        histories=(7003476, 9000671, 9004707),
    ),
    "no rest: late": Known(
        why="4.5: at rest after three schedules that decide something new.",
        histories=(8003312, 8004338, 9003188, 9004569),
    ),
    "dear: what follows": Known(
        why="4.5: the price counts what follows; that the job or a moved run takes more in its turn was not foreseen.",
        worlds=(8002199, 8006473, 9000182, 9005721, 9010062, 9018904),
    ),
}
