"""The families in which the engine is known to disagree with the rules: why, and some worlds that show it today.

Any other disagreement fails the test. So does a recorded one that no longer exists: then the engine has improved, and
it is removed from the list. A new one can only come from a seed that was not examined before.
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
        why="4.5: nothing is paused twice for one change. If the run were left alone, a job would have no place; or an "
        "elastic job starts with one worker, and the run that made way starts again before it has room for a second.",
        worlds=(742, 10012883, 12000579, 26010555),
        histories=(21002531, 22004851, 26000861),
    ),
    "no rest: late": Known(
        why="4.5: at rest after three schedules that decide something new.",
        histories=(9003188, 9004569, 11000140, 13000944, 19002171, 22004851, 25001590, 26000861, 26003789),
    ),
    "dear: what follows": Known(
        why="4.5: the price counts what follows; that the job or a moved run takes more in its turn was not foreseen.",
        worlds=(
            8002199,
            9010062,
            10005131,
            13017403,
            14000869,
            15001622,
            20004037,
            22010061,
            23003636,
            23007153,
            24003435,
            25002472,
            25018754,
        ),
    ),
    "dear: another set": Known(
        why="4.5: a GPU that two projects share by halves counts for the one that holds it. Once its run has left it "
        "counts for the other, so that the run takes nothing: its price was thought to be higher.",
        worlds=(
            10005691,
            12004302,
            13011643,
            19011300,
            21004499,
            23001635,
            24002078,
            24003922,
            24018652,
        ),
    ),
    "dear: a move spares a guarantee": Known(
        why="4.6: moves that would do without a straddled guarantee were not found.",
        worlds=(12014634, 19009240, 21002482, 23005162, 24009346, 24014513),
    ),
    "dear: an earlier pool": Known(
        why="4.4: in the first pool of the job's list moves beside the pause would have made room; moves are only "
        "looked for where pauses alone make none in any pool.",
        worlds=(16015194,),
    ),
    "dear: own work instead of a loan": Known(
        why="4.5: own work would have been the cheaper victim; what follows from it was thought to cost more.",
        worlds=(12003565,),
    ),
    "dear: mixed rights": Known(
        why="4.5: which paused run goes on first decides what the others find; for the price it was judged in another "
        "order.",
        worlds=(17012596,),
    ),
    "paused beside free GPUs: idle": Known(
        why="4.4: an elastic run was next for an idle GPU, so a run was paused for a job; a cycle later the job "
        "started on that GPU instead.",
        histories=(11003548, 22004851),
    ),
    "within share first": Known(
        why="4.3: a job within its share gives up its place by looking ahead, and one beyond it starts there.",
        worlds=(22017020, 25015613, 26016015),
    ),
    "waits: a ceiling judged after victims left": Known(
        why="4.3: where quotas are overcommitted, a GPU left over is guaranteed to the project that holds it. Once own "
        "work has left it for work that can't be paused, the project holds it no more, and the quota is exceeded.",
        worlds=(15007565,),
    ),
    "stays small at rest": Known(
        why="4.3: the same for a worker: own work that makes way for it takes along the right to the GPU left over.",
        worlds=(18012561,),
    ),
    "waits: mixed rights": Known(
        why="4.5: own work is paused so that its project has a claim, and starts again where it was. So two projects "
        "would take one GPU from each other without end, and the second waits with GPU5028.",
        worlds=(15002034, 23011753),
    ),
    "waits: one run": Known(
        why="4.5: a run that makes way would go on by its own rights, and what that leaves would have the job paused "
        "for another of its project. So the job waits with GPU5028, as does the other.",
        worlds=(25012044,),
        histories=(14003760,),
    ),
    "waits: fewer workers of the job": Known(
        why="4.5: the run that makes way would take the place again, beside a run too young to be moved. So the job "
        "waits with GPU5028 until that one may be moved, for less than minRuntime. Or the run that makes way would go "
        "on smaller, and the job, then beyond its share, would be paused for another project.",
        worlds=(25019110, 26015617),
    ),
    "waits: entitlement judged after victims left": Known(
        why="4.3: where quotas are overcommitted, a GPU left over is guaranteed to the project that holds it. That "
        "another project is entitled to it once its run has left is not seen before.",
        worlds=(25000492,),
        histories=(25000492,),
    ),
}
