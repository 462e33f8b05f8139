"""Where work fits: node capacity, free capacity, and the best place for one worker or a gang.

`nodes` and `free` know capacity; `fit`, `placement`, `topology` and `gang` find places in it; `fragmentation`,
`prices`, `request_mix` and `learned_mix` say what a placement costs the usual requests;
`unschedulable` remembers failed searches.
"""
