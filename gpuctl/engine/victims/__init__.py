"""Which runs make way: the victims with the fewest GPUs that let a job fit, and the rules of which runs may be taken.

`reclaim` (between projects) and `preempt` (inside one) hold the rights; `rules` combines them. `eviction` finds the
cheapest set of runs to pause or move; `search` walks with it from node to node. `elastic` takes workers instead of
runs, `consolidation` moves runs. `settled` tells which runs are left alone.
"""
