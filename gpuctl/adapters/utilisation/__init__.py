"""The use of GPUs as NVIDIA's DCGM exporter measures it: read from Prometheus, or from the exporters themselves."""
