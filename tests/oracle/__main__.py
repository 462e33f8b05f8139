"""Record a run: `python -m tests.oracle --worlds 20000 --seed 1`, or `--histories 5000`, or `--commits 5000`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .commits import check_commits
from .known import KNOWN
from .report import name_of, run_histories, run_worlds, seeds, smallest_history, smallest_world, table


def main() -> int:
    """Print the table and, with --examples, write the smallest example of each family into a folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--worlds", type=int, default=0)
    parser.add_argument("--histories", type=int, default=0)
    parser.add_argument("--commits", type=int, default=0, help="so many series of commits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=Path, help="a folder for the smallest example of each family")
    parser.add_argument("--families", action="store_true", help="exit 0 where each family found is a known one")
    asked = parser.parse_args()
    unknown = 0
    for count, is_worlds in ((asked.worlds, True), (asked.histories, False)):
        if not count:
            continue
        began = time.process_time()
        run = (run_worlds if is_worlds else run_histories)(seeds(asked.seed, count))
        spent = time.process_time() - began
        if is_worlds:
            counts = run.findings
            tells = f"{counts.worlds} worlds, {counts.asked} questions; {counts.with_a_way} jobs added that had a way"
            say(f"{tells}, {counts.served} given a place; {spent:.0f} s CPU")
        else:
            schedules = ", ".join(f"{n}: {times}" for n, times in sorted(run.told.schedules.items()))
            say(f"{count} histories, {run.told.changes} changes; schedules to rest {schedules}; {spent:.0f} s CPU")
        for line in table(run):
            say(line)
        unknown += len(run.unknown().keys() - (KNOWN.keys() if asked.families else ()))
        for family, found in run.families.items() if asked.examples else ():
            text = (smallest_world if is_worlds else smallest_history)(family, found)
            asked.examples.mkdir(parents=True, exist_ok=True)
            (asked.examples / f"{name_of(family)}.yaml").write_text(text, encoding="utf-8")
    if asked.commits:
        began = time.process_time()
        told = check_commits(seeds(asked.seed, asked.commits))
        spent = time.process_time() - began
        tells = f"{told.otherwise} do something else, {told.elsewhere} elsewhere, by the order in which pods follow"
        say(f"{told.commits} commits; {tells}; {spent:.0f} s CPU")
        for seed, differs in told.wrong.items():
            say(f"{seed} is not explained: {differs}")
        unknown += len(told.wrong)
    return 1 if unknown else 0


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
