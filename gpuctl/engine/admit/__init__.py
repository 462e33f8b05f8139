"""Admission: which pending jobs are attempted, in which order, what an attempt does, and why the other jobs wait.

`attempts` orders the jobs, `schedulability` skips those that could not start, `admission` makes the attempts;
`reservations` and `head_reservation` keep places, `repacking` places this cycle's admissions again, `start_conflicts`
separates starts that could take each other's GPUs; `under_scaled` and `scale_up` are about elastic jobs; `retries`
start what failed to start; `pending_reasons` says why a job waits; `outcome` is the result.
"""
