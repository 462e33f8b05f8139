"""Who makes way: the fewest GPUs that others lose so that a job fits, and the rules of who may be asked to.

`search` finds the cheapest runs on the nodes, `exchange` under a ceiling; `reclaim` (between projects) and `preempt`
(inside one) hold the rules; `elastic` takes workers instead of runs, `consolidation` moves them, `drain` lets them end.
"""
