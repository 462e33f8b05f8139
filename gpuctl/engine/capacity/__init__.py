"""Where work fits: node capacity, free capacity, and the best place for one worker or a gang.

`nodes` and `free` know capacity, `fit` requests; `placement`, `topology` and `gang` find places; `fragmentation`,
`prices` and `request_mix` tell what a placement costs the usual requests.
"""
