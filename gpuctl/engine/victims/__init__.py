"""Which runs make way: the fewest GPUs that others lose so that a job fits, and the rules of which may be taken.

`node_search` finds the cheapest runs on one node, `search` on all of them, `exhaustive` among few; `reclaim`
(between projects) and `preempt` (inside one) hold the rules; `elastic` takes workers instead of runs, `consolidation`
moves runs, `drain` lets them end.
"""
