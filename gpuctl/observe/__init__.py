"""Objects of the API server -> ClusterState. Pure: what it says follows from the objects alone, not from a clock."""

from gpuctl.observe.cache import ObserveCache
from gpuctl.observe.cluster import observe
from gpuctl.observe.freezes import CONTROL, decode_frozen, encode_frozen, read_frozen
from gpuctl.observe.ledgers import Records, read_ledgers

__all__ = [
    "CONTROL",
    "ObserveCache",
    "Records",
    "decode_frozen",
    "encode_frozen",
    "observe",
    "read_frozen",
    "read_ledgers",
]
