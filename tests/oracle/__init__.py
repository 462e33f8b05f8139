"""An oracle for small clusters: it tries every legal way in which a job could run, and is compared with the engine.

The statement: a job is added to a cluster at rest. In that cycle the engine makes room for it if and only if it has a
legal way to run, and at no higher price than the cheapest way. In a cluster at rest no waiting job has a legal way.

The oracle knows the rules of the fair share and the model's values. Of the engine it uses only `schedule`. From the
bottom: `worlds` draws small worlds from seeds; `cluster` carries schedules out; `shares` divides GPUs; `view` counts
GPUs that are held, free and asked for; `rules` says what is legal, rule by rule; `enumeration` tries all sets of
victims, surplus workers and moved runs; `families` names the subject of a disagreement; `taken` reads the set that a
schedule takes; `price` and `judge` compare; `histories` keeps its own accounts over outside changes; `shrink` and
`scenario` turn a disagreement into a small Scenario; `known` lists the known differences of the engine, and can only
shrink; `report` prints.

Not covered: CPU and memory, MIG slices, the starvation guard, suspended jobs, limits of time, nested departments, past
use, kube-scheduler's distribution of a gang's pods.
"""
