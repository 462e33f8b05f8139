"""What the engine may carry from one cycle to the next: what declarations and nodes alone imply, as long as both stay.

Nothing of it decides anything; thrown away, it is worked out anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import is_
from typing import TypeAlias

from gpuctl.model.declared import Declared
from gpuctl.model.ids import PoolName
from gpuctl.model.state import Node
from gpuctl.schedule.accounts import Tree
from gpuctl.schedule.capacity import Capacity, survey
from gpuctl.schedule.demand import Prospects
from gpuctl.schedule.effort import Effort
from gpuctl.schedule.habits import Habits
from gpuctl.schedule.learning import learn

View: TypeAlias = tuple[Capacity, Tree, Prospects]


class Outlook:
    """The nodes in their pools, the tree of owners, and what each job could have on empty nodes.

    `effort` is what the last cycle took, `elastic` whether any job may run with fewer workers.
    """

    __slots__ = ("_declared", "_habits", "_nodes", "_view", "effort", "elastic")

    def __init__(self) -> None:
        self._declared: tuple[object, ...] = ()
        self._nodes: tuple[Node, ...] = ()
        self._view: View | None = None
        self._habits: tuple[tuple[object, object], Mapping[PoolName, Habits]] | None = None
        self.effort = Effort()
        self.elastic = False

    def over(self, declared: Declared, nodes: tuple[Node, ...]) -> View:
        """The view of these; the one before, if they are the same objects and equal nodes. Cost: O(nodes) then.

        When only jobs have changed, what does not depend on them stays.
        """
        same = (declared.cluster, declared.domains, declared.departments, declared.projects, declared.jobs)
        stays = [*map(is_, same, self._declared)] if self._nodes == nodes else []
        if self._view is not None and stays and all(stays):
            return self._view
        if self._view is not None and stays and all(stays[:-1]):
            capacity, tree, prospects = self._view
            prospects.forget_but(len(declared.jobs))
        else:
            capacity, tree = survey(declared, nodes), Tree(declared)
            prospects = Prospects(capacity, tree)
        self._declared, self._nodes = same, nodes
        self.elastic = any(job.is_elastic for job in declared.jobs)
        self._view = replace(capacity, habits=self._learned(declared)), tree, prospects
        return self._view

    def _learned(self, declared: Declared) -> Mapping[PoolName, Habits]:
        """What is usually asked of each pool; nodes have no part in it."""
        of = declared.cluster.pools, declared.jobs
        if self._habits is None or not all(map(is_, of, self._habits[0])):
            self._habits = of, learn(*of)
        return self._habits[1]
