"""Admission: which pending jobs are attempted, in which order, what an attempt does, and why the other jobs wait.

`attempts` orders the jobs, `schedulability` skips those that could not start, `admission` makes the attempts;
`reservations` and `head_reservation` keep places, `repacking` places this cycle's admissions again, `start_conflicts`
separates starts that could take each other's GPUs; `scale_up` gives elastic runs more workers; `retries` starts runs
whose start failed; `pending_reasons` tells why a job waits; `outcome` is the result.
"""
