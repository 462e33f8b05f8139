"""The objects that a cluster needs to run gpuctl: the controller, its rights, and policies. Pure: `gpuctl install`
prints them."""

from __future__ import annotations

from gpuctl.install.guard import policies
from gpuctl.install.installation import HISTORY_FILE, HISTORY_PORT, UNGUARDED, USUAL, Duties, Installation
from gpuctl.install.installation import NAME as CONTAINER
from gpuctl.install.monitoring import operator_objects
from gpuctl.install.readers import freezer_role, history_role, reader_roles
from gpuctl.install.rights import account_and_rights
from gpuctl.install.workload import arguments, controller
from gpuctl.model.state import Body

__all__ = [
    "CONTAINER",
    "HISTORY_FILE",
    "HISTORY_PORT",
    "UNGUARDED",
    "Duties",
    "Installation",
    "all_objects",
    "arguments",
]


def all_objects(wanted: Installation, duties: Duties = USUAL) -> tuple[Body, ...]:
    """All objects in an order in which they can be applied: the namespace first, the Deployment after its rights."""
    namespace, *rest = controller(wanted, duties)
    watching = operator_objects() if wanted.monitoring else ()
    people = (*reader_roles(duties), *history_role(), *freezer_role())
    return (namespace, *account_and_rights(wanted, duties), *people, *policies(wanted, duties), *rest, *watching)
