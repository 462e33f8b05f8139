"""An oracle for small clusters: it tries every legal way in which a job could run, and is compared with the engine.

The statement: in a cluster at rest a job is added; the engine makes room for it in that cycle if and only if it has a
legal way to run, and pays no more than the cheapest; and in a cluster at rest no waiting job has a legal way.

The oracle knows the rules of the fair share and the model's values. Of the engine it uses `schedule` alone. From the
bottom: `worlds` draws small worlds from seeds; `cluster` carries schedules out; `shares` divides GPUs; `view` counts
what is held, free and asked for; `rules` says what is legal, rule by rule; `enumeration` tries all sets of victims,
surplus workers and moved runs; `families` names what a disagreement is about; `taken` reads what a schedule does as
such a set; `price` and `judge` compare; `histories` keeps books over outside changes; `shrink` and `scenario` turn a
disagreement into a small Scenario; `known` is what the engine is known to do otherwise, and can only shrink; `report`
prints.

Not covered: CPU and memory, MIG slices, the starvation guard, suspended jobs, limits of time, nested departments, past
use, dealing of a gang's pods by kube-scheduler.
"""
