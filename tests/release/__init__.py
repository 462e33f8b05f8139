"""Tools with which the tests read what is released: Helm, Kustomize."""
