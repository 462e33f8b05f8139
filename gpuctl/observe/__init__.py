"""Objects of the API server -> ClusterState. Pure: what it says follows from the objects alone, not from a clock."""

from gpuctl.observe.cache import ObserveCache
from gpuctl.observe.cluster import observe
from gpuctl.observe.freezes import CONTROL, decode_frozen, encode_frozen, read_frozen
from gpuctl.observe.incidents import Unexplained, problem_of_events, unexplained_runs, with_problems
from gpuctl.observe.ledgers import Records, read_ledgers

__all__ = [
    "CONTROL",
    "ObserveCache",
    "Records",
    "Unexplained",
    "decode_frozen",
    "encode_frozen",
    "observe",
    "problem_of_events",
    "read_frozen",
    "read_ledgers",
    "unexplained_runs",
    "with_problems",
]
