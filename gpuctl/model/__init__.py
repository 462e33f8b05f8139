"""The frozen values that the stages pass on. Standard library only; no I/O, no clock, no Kubernetes."""
