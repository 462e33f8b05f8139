"""Objects of the API server -> ClusterState. Pure: the result follows from the objects alone, not from a clock."""

from gpuctl.observe.cache import ObserveCache
from gpuctl.observe.cluster import observe
from gpuctl.observe.freezes import CONTROL, decode_frozen, encode_frozen, read_frozen
from gpuctl.observe.incidents import Unexplained, problem_of_events, unexplained_runs, with_problems
from gpuctl.observe.ledgers import Records, read_ledgers
from gpuctl.observe.utilisation import device_uses, forgotten, next_utilisation, with_idle

__all__ = [
    "CONTROL",
    "ObserveCache",
    "Records",
    "Unexplained",
    "decode_frozen",
    "device_uses",
    "encode_frozen",
    "forgotten",
    "next_utilisation",
    "observe",
    "problem_of_events",
    "read_frozen",
    "read_ledgers",
    "unexplained_runs",
    "with_idle",
    "with_problems",
]
