"""The verbs of gpuctl, such as `plan` and `apply`. They depend on ports, never on adapters."""
