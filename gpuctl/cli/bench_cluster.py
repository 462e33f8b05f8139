"""`gpuctl bench cluster`: the controller under load on a real API server, beside the same Jobs without it."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median_low

import click

from gpuctl.app.bench.cluster_figures import ClusterBench, Costs, Flow, percentile
from gpuctl.cli.command import command
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say, show
from gpuctl.diag.wording import thousandths
from gpuctl.views.tables import table

WORKLOADS = ("flow", "turnover", "reclaim", "crowd", "refills", "memory")
_HEADER = ("WORKLOAD", "MEASURED", "AIM", "BESIDE IT")
_GIB = 1 << 30

Row = tuple[str, str, str, str]


@command("cluster", examples=("gpuctl bench cluster --kubeconfig kwok.yaml", "gpuctl bench cluster --scale small"))
@click.option("--kubeconfig", metavar="FILE", help="A cluster with KWOK and no nodes. Default: as kubectl.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: its current one.")
@click.option(
    "--scale",
    type=click.Choice(["large", "full", "small"]),
    default="full",
    show_default=True,
    help="full: 125 nodes of 8 GPUs, 2,000 jobs; large: 1,000 nodes, 10,000 jobs; small: 2 nodes, 20 jobs.",
)
@click.option("--only", type=click.Choice(WORKLOADS), multiple=True, help="One workload, or several. Default: all.")
@click.option(
    "--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Rounds of all; the medians are shown."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def cluster(  # noqa: PLR0913, PLR0917 - one for each option
    kubeconfig: str | None, context: str | None, scale: str, only: tuple[str, ...], repeat: int, output: str
) -> None:
    """Measure a controller under load on a real API server.

    The cluster needs KWOK, with a stage that ends a pod after the time in its variable RUN_FOR, and must have no nodes:
    the benchmark creates its own, and removes everything else that it creates. The controller is a separate process.
    Each workload also runs without it: the same Jobs, which wait for kube-scheduler or are stopped by hand; short Jobs
    also created suspended and then resumed at once, as any queue does, without decisions. Memory is that of the
    controller's process at the end, and its maximum.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.bench.cluster import bench_cluster  # noqa: PLC0415
    from gpuctl.app.bench.cluster_figures import medians  # noqa: PLC0415
    from gpuctl.app.bench.cluster_tree import FULL, LARGE, SMALL  # noqa: PLC0415

    size = {"large": LARGE, "full": FULL, "small": SMALL}[scale]
    with wiring.cluster_bench(wiring.Target(kubeconfig=kubeconfig, context=context)) as yard:
        tell = partial(say, err=True)
        machine = _machine()
        rounds = [bench_cluster(yard, size, only or WORKLOADS, tell) for _ in range(repeat)]
    if output == "json":
        print_json({"machine": machine, "rounds": [dataclasses.asdict(one) for one in rounds]})
        return
    say(f"{machine}; {'one round' if repeat == 1 else f'medians of {repeat} rounds'}")
    show(table(_HEADER, [*_rows(medians(rounds))]))


def _machine() -> str:
    """The machine of the measurement, in words."""
    gib = -(-os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _GIB)
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {gib} GiB, {system}, load {os.getloadavg()[0]:.1f} before"


def _rows(measured: ClusterBench) -> Iterator[Row]:
    bare = {name: _median_ms(costs) for name, costs in measured.bare.items()}
    if measured.flow is not None and measured.queued is not None:
        yield from _of_flow(measured.flow, measured.bare["flow"], measured.queued)
    if measured.turnover is not None:
        turn = measured.turnover
        full = f"full after {_seconds(turn.filled_ms)}; {turn.busy_all_milli // 10} % with the time until then"
        beside = f"{turn.jobs} jobs of 10 s, three for each GPU, in {_seconds(turn.costs.wall_ms)}; {full}"
        beside += f"; bare Jobs in {_seconds(bare['turnover'])}; {_own(turn.costs)}"
        yield "GPUs given away while work waits", f"{turn.busy_milli // 10} %", "85 %", beside
    if measured.reclaim is not None:
        found = measured.reclaim
        told = f"{found.paused} of {found.wanted} paused, in {_cycles(found.pausing_cycles)}"
        beside = f"{told}; the writes alone, by hand, {_seconds(bare['reclaim'])}; {_own(found.costs)}"
        yield f"{found.wanted} jobs reclaim lent GPUs", _seconds(found.costs.wall_ms), "10 s", beside
    if measured.crowd is not None:
        crowd = measured.crowd
        last, median = crowd.from_commit_ms[-1], crowd.from_commit_ms[len(crowd.from_commit_ms) // 2]
        seen = crowd.from_object_ms[len(crowd.from_object_ms) // 2]
        beside = f"at most {_seconds(last)} from the commit, Git asked every 200 ms; {_seconds(seen)} from its object"
        beside += f"; a bare Job among as many pods that wait, {_seconds(bare['crowd'])}; {_own(crowd.costs)}"
        yield f"one that can start among {crowd.pending} that can't", _seconds(median), "1 s", beside
    if measured.refills is not None:
        refills = measured.refills
        steps = (("release", refills.released_ms), ("its pod", refills.made_ms), ("a node", refills.bound_ms))
        beside = ", ".join(f"{what} {_median_and_95(waits_ms)}" for what, waits_ms in steps)
        beside += f"; {_writes(refills.costs)}; all {len(refills.waits_ms)} in {_seconds(refills.costs.wall_ms)}"
        beside += f", bare Jobs in {_seconds(bare['refills'])}; {_own(refills.costs)}"
        yield "a pod ends, the next has a node, median and p95", _median_and_95(refills.waits_ms), "60 ms", beside
    if measured.memory is not None:
        held = measured.memory
        what = f"memory, {held.jobs} jobs on {measured.scale.nodes} nodes"
        beside = f"{held.made.memory_mib} MiB when all is at rest, after {_seconds(held.made.wall_ms)}; a process that "
        beside += f"finds it so: {held.found.peak_mib} MiB at most, then {held.found.memory_mib}; {_own(held.made)}"
        yield what, f"{held.made.peak_mib} MiB at most", "600 MiB", beside


def _median_ms(costs: Sequence[Costs]) -> int:
    return median_low(one.wall_ms for one in costs)


def _writes(costs: Costs) -> str:
    """How long writes took, by kind."""
    return ", ".join(f"{kind} {one.taken_ms // one.count} ms" for kind, one in costs.by_kind.items())


def _of_flow(flow: Flow, bare: Sequence[Costs], queued: Costs) -> Iterator[Row]:
    """Compare with the bare Jobs before and after, and with Jobs that are created suspended and resumed at once."""
    what, costs = f"{flow.jobs} jobs of 1 s", flow.costs
    bare_ms, bare_cpu = _median_ms(bare), median_low(one.server_cpu_ms for one in bare)
    rate, bare_rate = (1_000_000 * flow.jobs // wall_ms for wall_ms in (costs.wall_ms, bare_ms))
    ratio, most = 1000 * bare_ms // costs.wall_ms, 1000 * bare_ms // queued.wall_ms
    rates = f"{_tenths(rate)} jobs/s, bare Jobs {_tenths(bare_rate)}"
    beside = f"{rates}; bare Jobs made suspended and let go, {_tenths(most, 2)}; {_own(costs)}"
    yield what, f"{_tenths(ratio, 2)} of bare Jobs", "0.7", beside
    server = f"{_each(costs.server_cpu_ms, flow)} ms a job, bare Jobs {_each(bare_cpu, flow)} ms"
    server += f", made suspended and let go {_each(queued.server_cpu_ms, flow)} ms"
    yield "API server's CPU", f"{_tenths(1000 * costs.server_cpu_ms // max(1, bare_cpu), 2)} times bare", "2", server
    ledger = f"{costs.ledger_writes} of {costs.writes} for ledgers; {costs.events} Events besides; {_writes(costs)}"
    yield "writes a job", thousandths(1000 * costs.writes // flow.jobs), "4", ledger


def _median_and_95(waits_ms: Sequence[int]) -> str:
    return f"{percentile(waits_ms, 50)} and {percentile(waits_ms, 95)} ms"


def _own(costs: Costs) -> str:
    return f"gpuctl {_seconds(costs.own_cpu_ms)} CPU, {costs.memory_mib} MiB, at most {costs.peak_mib}"


def _cycles(count: int) -> str:
    return "one cycle" if count == 1 else f"{count} cycles"


def _seconds(duration_ms: int) -> str:
    return f"{_tenths(duration_ms, 2)} s"


def _each(total_ms: int, flow: Flow) -> str:
    return _tenths(1000 * total_ms // flow.jobs)


def _tenths(milli: int, digits: int = 1) -> str:
    """Thousandths as a decimal number, rounded to so many digits."""
    return f"{milli / 1000:.{digits}f}"
