"""Who may hold how much: fair shares of a domain's GPUs, who holds what of them, and what was used before.

From the bottom: `usage`, `fairshare` (arithmetic only), `accounts` (the tree of owners), `rights` (ceilings, and by
what right a job runs).
"""
