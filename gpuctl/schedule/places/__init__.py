"""Where work fits: what there is, what of it is free, and the best place for one worker, or for a whole gang.

`capacity` and `ledger` know room; `fit`, `placement`, `topology` and `gang` find places in it; `fragmentation`,
`prices`, `habits` and `learning` say what a place costs those who usually ask; `ranking` keeps the best nodes in order.
"""
