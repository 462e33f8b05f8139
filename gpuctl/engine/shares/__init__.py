"""How much each project may hold: the fair shares of a domain's GPUs, what is held of them, and past use.

From the bottom: `usage`, `fairshare` (arithmetic only), `accounts` (the tree of owners), `entitlement` (ceilings, and
the right by which a job runs).
"""
