"""Ports as people write them, and as a job's run says them."""

from __future__ import annotations

import pytest

from gpuctl.app.forwarding import PortPair, declared_ports, pair_of
from gpuctl.k8s.names import PORTS_ANNOTATION

SAID = {"8888": (8888, 8888), "9000:8888": (9000, 8888), "0:8888": (0, 8888), ":8888": (0, 8888)}


@pytest.mark.parametrize("said", SAID)
def test_a_port_as_kubectl_takes_it(said: str) -> None:
    assert pair_of(said) == PortPair(*SAID[said])


@pytest.mark.parametrize("said", ["0", "http", "1:2:3", "65536", "80:", "-1", "8888:http", "9" * 5000])
def test_anything_else_is_no_port(said: str) -> None:
    with pytest.raises(ValueError, match=r"^.+$"):
        pair_of(said)


@pytest.mark.parametrize(
    ("said", "ports"), [("8888,6006", (8888, 6006)), ("", ()), ("x,80,70000,80", (80,)), (",".join(["1"] * 9000), (1,))]
)
def test_ports_of_a_run_whatever_stands_there(said: str, ports: tuple[int, ...]) -> None:
    assert declared_ports({"metadata": {"annotations": {PORTS_ANNOTATION: said}}}) == ports
