"""Streams are waited for whatever their numbers are: a process may have thousands open."""

from __future__ import annotations

import fcntl
import os
import socket

from gpuctl.adapters.kubernetes.readable import readable


def test_numbers_above_a_thousand_are_waited_for() -> None:
    here, there = socket.socketpair()
    high = fcntl.fcntl(here, fcntl.F_DUPFD, 1500)
    try:
        assert readable([high], 0) == []
        there.send(b"x")
        assert readable([high], 10) == [high]
    finally:
        os.close(high)
        here.close()
        there.close()


def test_each_is_told_as_it_was_given_and_the_end_can_be_read() -> None:
    here, there = socket.socketpair()
    reading, writing = os.pipe()
    try:
        os.close(writing)
        assert readable([here, reading], 10) == [reading]
        there.close()
        assert set(readable([here, reading], 10)) == {here, reading}
    finally:
        os.close(reading)
        here.close()
