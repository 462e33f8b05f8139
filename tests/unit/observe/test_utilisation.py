"""What GPUs did, by run: which runs are idle, and which are not known."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from objects_by_hand import DIGEST, JOB_ID, NAMESPACE

from gpuctl.k8s import kinds
from gpuctl.k8s.utilisation import decode_utilisation, encode_utilisation, resumed
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, ObjectRef
from gpuctl.model.state import ClusterState, OwnObject, Run, RunPhase
from gpuctl.model.utilisation import IDLE_AFTER_MS, MOST_DELAY_MS, MOST_GAP_MS, Gauge, RunUse, Sample, Utilisation
from gpuctl.observe import device_uses, forgotten, next_utilisation, with_idle

EVERY_MS = 30_000
KEY = (JOB_ID, DIGEST)
GIB = 1 << 30


def place(workers: int, gpus: int) -> Placement:
    return Placement(
        workers=tuple(WorkerPlacement(node=NodeName(f"n{w}"), gpus=tuple(range(gpus))) for w in range(workers))
    )


RUN = Run(job=JOB_ID, digest=DIGEST, phase=RunPhase.RUNNING, placement=place(1, 1), gpu_milli=1000, started_at_ms=0)


def world(run: Run = RUN, *pods: str) -> ClusterState:
    refs = [ObjectRef(*kinds.POD, NAMESPACE, name) for name in pods or ("p0",)]
    return ClusterState(runs=(run,), pods=dict.fromkeys(refs, KEY))


def busy(at_ms: int, percent: int, pod: str = "p0", device: str = "G0", namespace: str = NAMESPACE) -> Sample:
    return Sample(Gauge.BUSY, namespace, pod, device, at_ms, 10 * percent)


class Meter:
    """Readings one after another."""

    def __init__(self, state: ClusterState | None = None) -> None:
        self.state = state or world()
        self.known = Utilisation()

    def read(self, at_ms: int, *samples: Sample) -> RunUse | None:
        self.known = next_utilisation(self.known, device_uses(samples, at_ms), self.state, at_ms)
        return self.known.runs.get(KEY)

    def rest(self, since_ms: int, until_ms: int, **about: str) -> int | None:
        """Readings of a GPU that does nothing. Returns since when the run is idle then."""
        use = None
        for at_ms in range(since_ms, until_ms + 1, EVERY_MS):
            use = self.read(at_ms, busy(at_ms, 0, **about))
        return None if use is None else use.idle_since_ms


def test_a_run_is_idle_since_its_gpu_went_quiet_once_that_is_long_enough() -> None:
    meter = Meter()
    assert meter.rest(0, IDLE_AFTER_MS - EVERY_MS) is None
    assert meter.rest(IDLE_AFTER_MS, IDLE_AFTER_MS + 5 * EVERY_MS) == 0
    seen_ms = IDLE_AFTER_MS + 5 * EVERY_MS
    assert meter.known.idle(seen_ms + MOST_DELAY_MS) == {KEY: 0}
    assert meter.known.idle(seen_ms + MOST_DELAY_MS + 1) == {}, "nothing says that it has not begun to work since"


def test_one_sample_of_work_ends_it_at_once() -> None:
    meter = Meter()
    meter.rest(0, IDLE_AFTER_MS)
    at_ms = IDLE_AFTER_MS + EVERY_MS
    use = meter.read(at_ms, busy(at_ms, 1))
    assert use is not None
    assert use.quiet_since_ms is None
    assert meter.rest(at_ms + EVERY_MS, at_ms + IDLE_AFTER_MS) is None, "it counts from the beginning"


def test_work_between_two_readings_counts() -> None:
    """Prometheus has all samples of the time, so no reading misses one."""
    meter = Meter()
    meter.rest(0, IDLE_AFTER_MS)
    now_ms = IDLE_AFTER_MS + 60_000
    use = meter.read(now_ms, *(busy(now_ms - ago, p) for ago, p in ((60_000, 0), (45_000, 27), (30_000, 0), (0, 0))))
    assert use is not None
    assert (use.quiet_since_ms, use.busy_milli) == (now_ms - 30_000, 67)


def test_time_without_samples_is_no_idle_time() -> None:
    meter = Meter()
    meter.rest(0, IDLE_AFTER_MS - EVERY_MS)
    later_ms = IDLE_AFTER_MS - EVERY_MS + MOST_GAP_MS + 1
    assert meter.rest(later_ms, later_ms + IDLE_AFTER_MS - EVERY_MS) is None
    assert meter.rest(later_ms + IDLE_AFTER_MS, later_ms + IDLE_AFTER_MS) == later_ms


def test_what_is_too_old_is_forgotten() -> None:
    meter = Meter()
    meter.rest(0, IDLE_AFTER_MS)
    assert forgotten(meter.known, IDLE_AFTER_MS + MOST_GAP_MS) is meter.known
    assert not forgotten(meter.known, IDLE_AFTER_MS + MOST_GAP_MS + 1).runs
    assert meter.read(IDLE_AFTER_MS + MOST_GAP_MS + 1) is None, "a source that knows nothing of it"


@pytest.mark.parametrize("ahead_ms", [-MOST_GAP_MS - 1, 60_001])
def test_samples_of_another_time_say_nothing(ahead_ms: int) -> None:
    assert Meter().read(1_000_000, busy(1_000_000 + ahead_ms, 0)) is None


def test_a_gang_is_idle_only_if_all_its_gpus_are_measured_and_quiet() -> None:
    gang = replace(RUN, placement=place(2, 2), gpu_milli=2000)
    meter = Meter(world(gang, "p0", "p1"))
    pairs = [("p0", "G0"), ("p0", "G1"), ("p1", "G2"), ("p1", "G3")]
    assert meter.read(0, *(busy(0, 0, pod, gpu) for pod, gpu in pairs[:3])) is None
    for at_ms in range(0, IDLE_AFTER_MS, EVERY_MS):
        meter.read(at_ms, *(busy(at_ms, 50 if gpu == "G3" else 0, pod, gpu) for pod, gpu in pairs))
    use = meter.read(IDLE_AFTER_MS, *(busy(IDLE_AFTER_MS, 0, pod, gpu) for pod, gpu in pairs))
    assert use is not None
    assert (use.held_milli, use.quiet_since_ms, use.idle_since_ms) == (4000, IDLE_AFTER_MS, None)


def test_pods_that_are_no_jobs_and_forged_names_do_not_count() -> None:
    meter = Meter()
    assert meter.read(0, busy(0, 0, pod="stranger"), busy(0, 0, namespace="elsewhere")) is None


def test_a_second_series_can_end_idleness_and_never_make_it() -> None:
    """Whoever could add a series to Prometheus under the name of another team's pod."""
    meter = Meter()
    for at_ms in range(0, 2 * IDLE_AFTER_MS, EVERY_MS):
        use = meter.read(at_ms, busy(at_ms, 90), busy(at_ms, 0), busy(at_ms, 0, device="forged"))
        assert use is not None
        assert use.quiet_since_ms is None


def test_a_part_of_a_gpu_counts_for_what_is_held_of_it() -> None:
    use = Meter(world(replace(RUN, gpu_milli=500))).read(
        0, busy(0, 60), Sample(Gauge.USED, NAMESPACE, "p0", "G0", 0, GIB)
    )
    assert use is not None
    assert (use.held_milli, use.busy_milli, use.percent, use.used_bytes) == (500, 300, 60, GIB)


def test_an_activity_counter_stands_in_and_speaks_up() -> None:
    """A slice has no utilisation of its own; of a whole GPU, light inference reads 0 % and is active all the same."""
    active = Sample(Gauge.ACTIVE, NAMESPACE, "p0", "G0/1", 0, 250)
    use = Meter().read(0, active)
    assert use is not None
    assert use.busy_milli == 250
    use = Meter().read(0, busy(0, 0), active._replace(device="G0"))
    assert use is not None
    assert (use.busy_milli, use.quiet_since_ms) == (0, None)


def test_a_run_is_idle_from_its_start_at_the_earliest() -> None:
    meter = Meter(world(replace(RUN, started_at_ms=45_000)))
    assert meter.rest(0, IDLE_AFTER_MS + 60_000) == 45_000


@pytest.mark.parametrize("phase", [RunPhase.STARTING, RunPhase.STOPPING, RunPhase.QUEUED])
def test_only_runs_that_run_are_known(phase: RunPhase) -> None:
    assert Meter(world(replace(RUN, phase=phase))).read(0, busy(0, 0)) is None


def test_what_is_measured_stands_for_what_annotations_say() -> None:
    told = replace(RUN, idle_since_ms=5)
    assert with_idle(world(told), None).runs == (told,)
    assert with_idle(world(told), {}).runs == (RUN,)
    measured = with_idle(world(told), {KEY: 7})
    assert (measured.runs[0].idle_since_ms, measured.is_measured) == (7, True)


H100 = Path(__file__).parents[2] / "traces" / "h100-utilisation.csv"


def quiet_ms(phase: str, every: int) -> int:
    """For how long a phase of the measured GPU, repeated for an hour, is quiet at most, read every so many seconds."""
    with H100.open() as file:
        percents = [int(row["utilization.gpu"]) for row in csv.DictReader(file) if row["phase"] == phase]
    meter, longest = Meter(), 0
    for second in range(0, 3600, every):
        use = meter.read(1000 * second, busy(1000 * second, percents[second % len(percents)]))
        assert use is not None
        longest = max(longest, 0 if use.quiet_since_ms is None else use.seen_ms - use.quiet_since_ms)
    return longest


def test_work_of_a_measured_gpu_that_is_seen_and_work_that_is_not() -> None:
    """Training that starves looks busy where each second is seen. Light inference reads 0 in every sample: so the
    pages advise an hour and more, and the second counter."""
    assert quiet_ms("training", 30) == 0
    assert quiet_ms("training-starved-by-data", 1) < IDLE_AFTER_MS
    for phase in ("idle-memory-held", "inference-light", "notebook-idle-30GB-held"):
        assert quiet_ms(phase, 30) >= IDLE_AFTER_MS, phase


@pytest.mark.parametrize("back_ms", [60_001, 3_600_000])
def test_a_clock_that_is_put_back_makes_no_run_idle(back_ms: int) -> None:
    """How long ago it was seen is not known then: it may have worked ever since, with nothing that measures it."""
    meter, late_ms = Meter(), 20 * IDLE_AFTER_MS
    meter.rest(late_ms - IDLE_AFTER_MS, late_ms)
    now_ms = late_ms - back_ms
    assert meter.known.idle(late_ms) == {KEY: late_ms - IDLE_AFTER_MS}
    assert meter.known.idle(now_ms) == {}
    assert not forgotten(meter.known, now_ms).runs
    assert meter.read(now_ms) is None, "a source that knows nothing of it"
    meter.rest(late_ms - IDLE_AFTER_MS, late_ms)
    assert meter.rest(now_ms, now_ms + IDLE_AFTER_MS) == now_ms, "it counts from the beginning"


def test_a_clock_that_is_put_forward_makes_no_run_idle() -> None:
    meter = Meter()
    meter.rest(0, IDLE_AFTER_MS - EVERY_MS)
    assert meter.rest(3_600_000, 3_600_000 + IDLE_AFTER_MS - EVERY_MS) is None


def test_replicas_that_follow_each_other_do_not_make_a_run_idle_that_nothing_measures() -> None:
    """Each goes on from what the last one has published; the exporter of this run's node has died, others answer."""
    meter, job = Meter(), ObjectRef(*kinds.JOB, NAMESPACE, "a-1-0badcafe")
    state = replace(meter.state, own={job: OwnObject(KEY, "1")})
    last_ms = now_ms = 2 * IDLE_AFTER_MS
    meter.rest(IDLE_AFTER_MS, last_ms)
    while now_ms < last_ms + MOST_GAP_MS:
        now_ms += 2 * EVERY_MS
        meter.known = resumed(decode_utilisation(encode_utilisation(meter.known, state)), state)
        meter.read(now_ms)
        assert bool(meter.known.idle(now_ms)) == (now_ms - last_ms <= MOST_DELAY_MS)
    assert meter.read(now_ms + EVERY_MS) is None
