"""The frozen values the stages exchange. Standard library only; no I/O, no clock, no Kubernetes."""
