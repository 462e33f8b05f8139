"""Where work fits: what there is, what of it is free, and the best place for one worker, or for a whole gang.

`nodes` and `free` know capacity; `fit`, `placement`, `topology` and `gang` find places in it; `fragmentation`,
`prices`, `request_mix` and `learned_mix` say what a place costs the requests that are usual; `ranking` keeps the best
nodes in order; `unschedulable` remembers failed searches.
"""
