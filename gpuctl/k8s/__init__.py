"""Kubernetes as data: names, quantities, and how gpuctl's own facts are written on objects. No client."""
