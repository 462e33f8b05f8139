"""Runs of many worlds or histories, and the table of their results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .families import Disagreement
from .histories import History, Told, draw_history, live, shrink_history
from .judge import Findings, examine
from .known import KNOWN
from .scenario import history_scenario, scenario
from .shrink import shrink
from .worlds import WorldSpec, draw

SEEDS_APART = 1_000_000
"""The distance between the seeds of two runs: the runs have no world in common."""
TRIED = 3
"""The most worlds of a family that are shrunk; the smallest is shown."""


def seeds(seed: int, count: int) -> range:
    """The seeds of the worlds of one run."""
    return range(seed * SEEDS_APART, seed * SEEDS_APART + count)


@dataclass(slots=True)
class Run:
    """The results of many worlds or histories: for each family the seeds that show it."""

    families: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    findings: Findings = field(default_factory=Findings)
    told: Told = field(default_factory=Told)

    def unknown(self) -> dict[str, list[int]]:
        """For each family, the seeds that are not in the list of known ones."""
        left = {
            family: [seed for seed in found if not _is_known(family, seed)] for family, found in self.families.items()
        }
        return {family: found for family, found in sorted(left.items()) if found}


def _is_known(family: str, seed: int) -> bool:
    known = KNOWN.get(family)
    return known is not None and seed in (*known.worlds, *known.histories)


def run_worlds(some: Iterable[int]) -> Run:
    """Examine the worlds of these seeds."""
    run = Run()
    for seed in some:
        findings = examine(draw(seed))
        run.findings.add(findings)
        for family in {each.family for each in findings.found}:
            run.families[family].append(seed)
        run.findings.found.clear()
    return run


def run_histories(some: Iterable[int]) -> Run:
    """Live through the histories of these seeds."""
    run = Run()
    for seed in some:
        told = live(draw_history(seed))
        run.told.changes += told.changes
        run.told.schedules += told.schedules
        for family in {each.family for _, each in told.found}:
            run.families[family].append(seed)
    return run


def table(run: Run) -> Iterator[str]:
    """The table of the families, the most frequent first, with seeds that show them."""
    counts, unknown = Counter({family: len(found) for family, found in run.families.items()}), run.unknown()
    yield f"| {'family':60} | worlds | known | first seeds |"
    yield f"|{'-' * 62}|-------:|-------|-------------|"
    for family, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        first = ", ".join(map(str, run.families[family][:4]))
        yield f"| {family:60} | {count:6} | {'NO' if family in unknown else 'yes':5} | {first} |"


def smallest_world(family: str, some: Iterable[int]) -> str:
    """The smallest world that shows a family, of those from the first seeds, as a Scenario."""

    def of_family(spec: WorldSpec) -> list[Disagreement]:
        return [each for each in examine(spec).found if each.family == family]

    small = [shrink(draw(seed), lambda spec: bool(of_family(spec))) for seed in list(some)[:TRIED]]
    texts = []
    for spec in small:
        first = of_family(spec)[0]
        texts.append(scenario(spec, name_of(family), f"{first.kind}: {first.job} {first.tells}", first.job))
    return min(texts, key=len)


def smallest_history(family: str, some: Iterable[int]) -> str:
    """The smallest history that shows a family, of those from the first seeds, as a Scenario."""

    def of_family(history: History) -> list[Disagreement]:
        return [each for _, each in live(history).found if each.family == family]

    texts = []
    for seed in list(some)[:TRIED]:
        history = shrink_history(draw_history(seed), lambda each: bool(of_family(each)))
        first = of_family(history)[0]
        texts.append(history_scenario(history, name_of(family), f"{first.kind}: {first.job} {first.tells}", first.job))
    return min(texts, key=len)


def name_of(family: str) -> str:
    """The name of a scenario for a family."""
    return family.lower().replace(":", "").replace("'", "").replace(" ", "-")
