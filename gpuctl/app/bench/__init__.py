"""What `gpuctl bench` measures: one module a workload, its input made from a fixed seed."""
