"""Admission: which pending jobs are attempted, in which order, what each attempt comes to, and why the others wait.

`attempts` orders them, `schedulability` skips those that could not start, `admission` makes the attempts;
`reservations` and `head_reservation` keep places, `repacking` places this cycle's starts anew, `start_conflicts`
parts starts that could take each other's GPUs, `regain_workers`, `under_scaled` and `scale_up` are about elastic
jobs.
"""
