"""Who brings the nodes of a real cluster into being: whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.model.declared import NodePool


class StandingMachines:
    """Implements the port Machines where nodes are not gpuctl's to make."""

    def provide(self, pools: Sequence[NodePool]) -> None:
        """Nothing: what differs from the declared inventory is reported by the cycle."""
