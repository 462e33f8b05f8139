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
        worlds=(742, 9012821, 10005834, 10009889, 10012883, 11014902, 11019074),
        histories=(7003476, 9000671, 9004707, 11000455),
    ),
    "no rest: late": Known(
        why="4.5: at rest after three schedules that decide something new.",
        histories=(8003312, 8004338, 9003188, 9004569, 10003178, 11000140, 11000958),
    ),
    "dear: what follows": Known(
        why="4.5: the price counts what follows; that the job or a moved run takes more in its turn was not foreseen.",
        worlds=(8002199, 8006473, 9000182, 9005721, 9010062, 9018904, 10005131, 10011316, 11009074, 11009682),
    ),
    "dear: another set": Known(
        why="4.5: a GPU that two projects share by halves counts for the one that holds it. Once its run has left it "
        "counts for the other, so that the run takes nothing: its price was thought to be higher.",
        worlds=(10005691,),
    ),
    "paused beside free GPUs: idle": Known(
        why="4.4: an elastic run was next for an idle GPU, so a run was paused for a job; a cycle later the job "
        "started on that GPU instead.",
        histories=(11003548,),
    ),
    "waits: moves": Known(
        why="4.6: moved runs find places one after another, each in its best pool; here one had to take another.",
        worlds=(10007533,),
    ),
}
