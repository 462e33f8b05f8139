"""The verbs. They depend on ports, never on adapters."""
