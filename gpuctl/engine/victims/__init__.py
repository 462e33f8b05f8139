"""Which runs make way: the fewest GPUs that others lose so that a job fits, and the rules of which may be taken.

`reclaim` (between projects) and `preempt` (inside one) hold the rights, `rules` combines them. `eviction` finds the
cheapest set of runs to pause or move, `search` walks with it from node to node; `elastic` takes workers instead of
runs, `consolidation` moves runs. `settled` says which runs are left alone.
"""
