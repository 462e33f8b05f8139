"""A fingerprint of what the engine decides, for changes that must not change it.

Run `PYTHONHASHSEED=0 python tests/properties/decisions.py` before and after, and compare the lines; the first that
differs names the world. It covers the worlds of `gpuctl bench engine` cold and after each event, histories of random
small clusters, and with `--trace` days of the Philly trace.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from strategies import Story, stories

from gpuctl.app.bench import engine
from gpuctl.app.bench.engine import LARGE_NODES, NODE_GPUS
from gpuctl.app.bench.engine_worlds import NOW_MS, World, crowded, differing
from gpuctl.app.bench.philly import FIRST_DAY, bench_philly, days_from, philly_order
from gpuctl.app.replay import File
from gpuctl.engine import EngineCache, schedule
from gpuctl.model.units import Instant
from gpuctl.simulate import replay
from gpuctl.simulate.modes import ModeName

BATCH = 100


def digest(*values: object) -> str:
    """Of values that are written down the same whenever they are the same."""
    return sha256(repr(values).encode()).hexdigest()[:16]


def engine_worlds(*, large: bool) -> Iterator[tuple[str, str]]:
    """Cold, unchanged, and after a run's end, a job more and a node's loss; and the special ones."""
    rest = {
        "cycle": crowded((NODE_GPUS,) * 1000, 10_000, 100),
        "waiters": differing((NODE_GPUS,) * 80, 10_000, 40),
        **({"large": crowded(LARGE_NODES, 100_000, 100)} if large else {}),
    }
    for name, full in rest.items():
        events = (("unchanged", full), ("ended", engine._ended(full, 0)), ("added", engine._added(full, 0)))
        yield from chain_of(name, full, (*events, ("lost", engine._lost(full, 0))))
    for nodes in (10, 100, 1000):
        lent, scattered = engine.lent_out(nodes), engine.scattered(min(nodes, 100))
        yield from chain_of(f"reclaim {nodes}", lent, ())
        yield from chain_of(f"consolidate {nodes}", scattered, ())


def chain_of(name: str, full: World, events: Sequence[tuple[str, World]]) -> Iterator[tuple[str, str]]:
    """A world cold, and each of the others after it with what the engine keeps."""
    yield f"{name} cold", digest(schedule(full.declared, full.state, NOW_MS, EngineCache()))
    for what, after in events:
        cache = EngineCache()
        schedule(full.declared, full.state, NOW_MS, cache)
        yield f"{name} {what}", digest(schedule(after.declared, after.state, NOW_MS, cache))


def histories(count: int) -> Iterator[tuple[str, str]]:
    """Random histories, each until it comes to rest; one line for each hundred of them."""
    told: list[str] = []
    worlds = 0

    @seed(14)
    @given(stories())
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    def live(story: Story) -> None:
        nonlocal worlds
        world = story.world()
        made: list[object] = []
        for tree in story.chapters(world):
            for state, decided in world.decided(tree, most=60):
                made += [state.runs, decided]
                worlds += 1
        told.append(digest(*made))

    live()
    for first in range(0, len(told), BATCH):
        yield f"histories {first}", digest(*told[first : first + BATCH])
    yield "worlds in them", str(worlds)


def philly(trace: Path, days: int, gpus: int) -> Iterator[tuple[str, str]]:
    """Every decision of a replay of so many days."""
    made = sha256()
    carry_out = replay.Replay._carry_out

    def seen(self: replay.Replay, decisions: Sequence[replay.RunTransition], now_ms: Instant) -> bool:
        made.update(repr((now_ms, decisions)).encode())
        return carry_out(self, decisions, now_ms)

    replay.Replay._carry_out = seen  # type: ignore[method-assign]
    try:
        pause_cost = replay.PauseCost(stop_ms=30_000, checkpoint_ms=1_800_000)
        file = File(path=str(trace), content=trace.read_bytes())
        span = days_from(FIRST_DAY, days)
        bench_philly([philly_order(file, gpus, [ModeName.FAIR], pause_cost, span=span)])
    finally:
        replay.Replay._carry_out = carry_out  # type: ignore[method-assign]
    yield f"philly {days} days, {gpus} GPUs", made.hexdigest()[:16]


def main() -> None:
    """Print a line for each group of worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=640)
    parser.add_argument("--large", action="store_true", help="With the world of 100,000 jobs.")
    asked = parser.parse_args()
    days = philly(asked.trace, asked.days, asked.gpus) if asked.trace else ()
    for name, value in chain(engine_worlds(large=asked.large), days, histories(asked.histories)):
        sys.stdout.write(f"{value}  {name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
