"""A real Kubernetes control plane for the tests: built from Go modules, run on loopback."""
