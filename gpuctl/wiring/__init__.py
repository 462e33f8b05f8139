"""The composition root: builds adapters and hands them to the verbs. Only commands import it, when they run.

A part is imported when one of its names is first used: importing the controller's adapters takes longer than most
commands run. Measured: `gpuctl project list` of the example takes 0.27 s of processor time, and 0.87 s with all parts.
No part may have the name of a function: Python would find the module in its place.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PARTS = {
    "controller": ("IN_MEMORY", "Follow", "Measured", "Served", "Target", "reconcile"),
    "pages": ("Allowed", "Shown", "dashboard"),
    "past": (
        "inputs_of_report", "past_in_cluster", "past_in_file", "report_at", "report_in", "report_in_cluster",
        "write_report",
    ),
    "access": (
        "blueprint", "checkout", "clock", "compared_revisions", "compile_cache", "console", "control", "forge",
        "forge_number", "forwarder", "host", "lacking", "looking", "new_files", "new_repository",
        "passing_clock", "reading", "reading_embedded", "reading_once", "reading_status", "removal", "rest_entry",
        "rolled_back", "scenario_reader", "sessions_of", "terminal_screen",
    ),
    "stages": ("EXAMPLE", "cluster_bench", "demo", "example_cluster", "example_policies", "sandbox"),
}  # fmt: skip
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}

if TYPE_CHECKING:
    from gpuctl.wiring.access import *  # noqa: F403
    from gpuctl.wiring.controller import *  # noqa: F403
    from gpuctl.wiring.pages import *  # noqa: F403
    from gpuctl.wiring.past import *  # noqa: F403
    from gpuctl.wiring.stages import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """A name of one of the parts; kept here for its next use."""
        if name not in _PART_OF:
            raise AttributeError(name)
        found = getattr(import_module(f"gpuctl.wiring.{_PART_OF[name]}"), name)
        globals()[name] = found
        return found
