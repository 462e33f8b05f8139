"""How much each project may hold: fair shares of a domain's GPUs, what is held of them, and what was used before.

From the bottom: `usage`, `fairshare` (arithmetic only), `accounts` (the tree of owners), `entitlement` (ceilings, and
by what right a job runs).
"""
