"""Runs fuzzers as long as wanted: `python -m tests.fuzz --inputs 100000 --seed 1 [--target NAME] [--first N]`.

Prints inputs, seconds and failures of each target, and writes failing inputs to its corpus. Exit 1 if any failed,
or if the process needed more memory than MOST_MIB.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import time
from itertools import islice

from .harness import attempt, corpus, inputs, keep, targets

MOST_MIB = 300
"""Of the process, with all that gpuctl imports: about 100."""


def main() -> int:
    """Parse the command line and run."""
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--target", choices=known, action="append")
    given = parser.parse_args()
    failed = [fuzz(name, given.inputs, given.seed, given.first) for name in given.target or known]
    most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"most memory: {most_mib} MiB of {MOST_MIB}\n")
    return 1 if any(failed) or most_mib > MOST_MIB else 0


def fuzz(name: str, number: int, seed: int, first: int) -> int:
    """Run one target; the number of inputs that failed."""
    target, seeds = targets()[name], list(corpus(name).values())
    begin, failures, places = time.monotonic(), 0, set()
    for at, data in enumerate(islice(inputs(target, seeds, seed, first), number), first):
        failure = attempt(target, data)
        if failure is None:
            continue
        failures += 1
        if failure.place not in places:
            places.add(failure.place)
            path = keep(name, failure, f"failed-{hashlib.sha256(data).hexdigest()[:12]}")
            sys.stdout.write(
                f"{name}: input {at} of seed {seed} failed at {failure.place}, kept as {path}\n{failure.told}\n"
            )
            sys.stdout.flush()
    seconds = time.monotonic() - begin
    sys.stdout.write(f"{name}: {number} inputs of seed {seed} from {first}, {seconds:.0f} s, {failures} failed\n")
    sys.stdout.flush()
    return failures


if __name__ == "__main__":
    sys.exit(main())
