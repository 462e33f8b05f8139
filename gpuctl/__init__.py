"""gpuctl: GPU projects, quotas and jobs declared in Git, compiled, scheduled fairly and reconciled into Kubernetes.

The map, in the order data flows (docs/internals/architecture.md tells it in full):

    compile   files -> Declared           observe   objects -> ClusterState
    schedule  (Declared, ClusterState, now) -> Schedule
    render    (Declared, Schedule) -> Manifests
    plan      (Manifests, ClusterState) -> Plan
    app       the verbs: read the world, call the stages, apply the plan

`model` holds the values they exchange, `diag` what people are told, `k8s` Kubernetes as data, `simulate` scenarios,
`views` tables and reports, `adapters` one outside system a module, `cli` one command a module.
"""

__version__ = "0.1.0"
