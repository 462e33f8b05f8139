"""Makes the tables of figures in docs/benchmarks.md from the recorded runs in docs/benchmarks/, one file a run.

A record has the command, the date, the machine, the version of gpuctl, and what the command printed with `-o json`; or,
where that was not kept or there is no such form, the table itself as `columns` and `rows`. To make one:

    python tests/house/benchmarks.py NAME -- gpuctl bench openb --traces FOLDER -o json

In the page, what stands between `<!-- figures NAME -->` and `<!-- /figures -->` is made of the record NAME.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gpuctl import __version__

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
FACTS = ("command", "date", "machine", "version")
"""What a record says besides its figures; `note` may be there too."""
Record: TypeAlias = Mapping[str, Any]
_BLOCK = re.compile(r"(?s)(<!-- figures ([a-z0-9 -]+) -->\n).*?(<!-- /figures -->\n)")


def records() -> dict[str, Record]:
    """The records by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))}


def named_in(page: str) -> list[str]:
    """The names of the records that a page shows."""
    return [name for match in _BLOCK.finditer(page) for name in match[2].split()]


def filled(page: str, found: Mapping[str, Record]) -> str:
    """The page with the figures of the records in their places."""

    def block(match: re.Match[str]) -> str:
        names = match[2].split()
        make = TABLES.get(names[0], plain)
        told = "\n\n".join(source(name, found[name]) for name in names)
        return f"{match[1]}\n{make([found[name] for name in names])}\n\n{told}\n\n{match[3]}"

    return _BLOCK.sub(block, page)


def source(name: str, record: Record) -> str:
    """What a table's figures are: the command, the day, the version and the machine."""
    note = f" {record['note']}" if "note" in record else ""
    told = f"`{record['command']}`, {record['date']}, gpuctl {record['version']}, {record['machine']}"
    return f"[`{name}.json`](benchmarks/{name}.json): {told}.{note}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def plain(of: Sequence[Record]) -> str:
    """The table of a record that is one."""
    (record,) = of
    return table(record["columns"], record["rows"])


# openb


def percent(millionths: int) -> str:
    """In percent, rounded to hundredths."""
    hundredths = (millionths + 50) // 100
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def about(figure: Mapping[str, Any]) -> str:
    """A mean with twice its standard error, where there are several runs."""
    mean, error = percent(figure["mean_at_100"]), figure["error_at_100"]
    return mean if error is None else f"{mean} ± {percent(2 * error)}"


def openb_policies(of: Sequence[Record]) -> str:
    """The policies side by side; the second record is of those that learn from what has come so far."""
    whole, blind = (record["output"]["figures"] for record in of)
    by_list: dict[str, dict[str, Mapping[str, Any]]] = {}
    for figure in whole:
        by_list.setdefault(figure["pod_list"], {})[figure["policy"]] = figure
    learning = {figure["pod_list"]: figure for figure in blind}
    rows = []
    for name, figures in by_list.items():
        others = [f"{about(figures[policy])} ({percent(figures[policy]['published'])})" for policy in OPENB]
        rows.append([name, *others, f"**{about(figures['gpuctl'])}**", percent(learning[name]["mean_at_100"])])
    return table(["pod list", *OPENB.values(), "gpuctl", "learning"], rows)


# 10,000 jobs: compile, review, cycle


def seconds(ms: int) -> str:
    """In seconds, with two digits."""
    return f"{ms / 1000:.2f} s"


def thousands(of: Sequence[Record]) -> str:
    """What 10,000 jobs cost to compile, to check and to reconcile: the records of compile, review and cycle."""
    compiled, reviewed, cycled = (record["output"] for record in of)
    cpu = {what: seconds(each["cpu_ms"]) for what, each in reviewed["measured"].items()}
    cold, unchanged, event = (seconds(cycled[name]["all_ms"]) for name in ("cold", "unchanged", "event"))
    size, ratio = compiled["size_bytes"] / (1 << 20), compiled["ratio_milli"] / 1000
    compiles = f"compile: {compiled['jobs']:,} jobs in {compiled['files']:,} files, {size:.1f} MiB"
    beside = f"{ratio:.1f} times parsing with PyYAML's C loader; {compiled['peak_mib']} MiB at most"
    writes = f"{cycled['first_writes']:,} writes; the server's work, too"
    rows = [
        [compiles, seconds(compiled["compile_ms"]), "", beside],
        ["`validate`, nothing known", cpu["validate, nothing known"], "4 s", ""],
        ["`validate` of what was validated before", cpu["validate, known"], "0.5 s", ""],
        ["`plan` of a quota that is cut, nothing known", cpu["plan, nothing known"], "", ""],
        [
            "`plan` of it where base was planned before",
            cpu["plan of the change"],
            "5 s",
            f"`git diff`: {cpu['git diff']}",
        ],
        ["a process's first cycle", cold, "", f"{cycled['running']} jobs run on the embedded cluster"],
        ["a cycle in which nothing has changed", unchanged, "", f"{cycled['unchanged_writes']} writes"],
        ["a cycle after a job has ended: another starts", event, "", f"{cycled['changes']} writes"],
        ["from an empty cluster to rest", seconds(cycled["first_ms"]), "", writes],
    ]
    return table(["what", "CPU", "aim", "beside it"], rows)


# Philly

MODES = {"fair": "**gpuctl**", "floor": "floor", "fifo": "FIFO", "drf": "DRF", "static": "static quotas"}
LEFT_OUT = ("projects",)
"""What of a replay's mode is in no table, and too long to keep: each project's use over time."""


def lasting(ms: int) -> str:
    """A mean time, in the unit that shows it best."""
    return f"{ms / 1000:.0f} s" if ms < 600_000 else f"{ms / 3_600_000:.2f} h"


def parts(ppm: int | None) -> str:
    """Parts of a million, in percent."""
    return "-" if ppm is None else f"{ppm / 10_000:.2f} %"


def philly(of: Sequence[Record]) -> str:
    """Each size of the cluster, in each mode; the second record has gpuctl's rows of before, by size."""
    now, before = of
    rows = []
    for replay in now["output"]:
        modes = {mode["mode"]: mode for mode in replay["modes"]}
        size = str(replay["gpus"])
        for name, title in MODES.items():
            if name in modes:
                rows.append([size, title, *_replayed(modes[name], replay["cpuMs"][name])])
        rows += [row for row in before["rows"] if row[0] == size]
    return table(before["columns"], rows)


def _replayed(mode: Mapping[str, Any], cpu_ms: int) -> list[str]:
    never = f", {mode['unfinished']} jobs never" if mode["unfinished"] else ""
    pauses = mode["mode"] == "fair"
    return [
        lasting(mode["meanWaitMs"]) + never,
        "-" if mode["waitOfFloorMilli"] is None else f"{mode['waitOfFloorMilli'] / 1000:.2f}",
        lasting(mode["p95WaitMs"]),
        parts(mode["unfairPpm"]),
        f"{mode['violations']:,}",
        lasting(mode["longestShortMs"]),
        f"{mode['pauses']:,}" if pauses else "-",
        parts(mode["youngVictimsPpm"]) if pauses else "-",
        f"{mode['mostStarts']}" if pauses else "-",
        parts(mode["displacedPpm"]) if pauses else "-",
        parts(mode["wastedPpm"]) if pauses else "-",
        parts(mode["usedPpm"]),
        f"{cpu_ms / 1000:.0f} s",
    ]


# The engine

COUNTED = {"read": "read", "attempts": "attempts", "placings": "placings", "victims": "victims", "moved": "moved"}
"""Of what the engine counts, by the words of the table; zeros are left out."""


def engine(of: Sequence[Record]) -> str:
    """Each workload of `bench engine`, in milliseconds of CPU."""
    (record,) = of
    rows = []
    for figure in record["output"]["figures"]:
        counts, aim = figure["counts"], figure["aim_microseconds"]
        counted = ", ".join(f"{counts[name]:,} {word}" for name, word in COUNTED.items() if counts.get(name))
        measured = f"{figure['microseconds'] / 1000:,.1f} ms"
        aimed = "" if aim is None else f"{aim // 1000:,} ms"
        rows.append([f"{figure['workload']}: {figure['what']}", f"{counts.get('jobs', 0):,}", measured, aimed, counted])
    return table(["workload", "jobs", "CPU", "aim", "counted"], rows)


def dashboard(of: Sequence[Record]) -> str:
    """What each page costs the process of the pages and the browser, and what changes of the cluster cost it."""
    (record,) = of
    found = record["output"]
    rows = []
    for path, page in found["pages"].items():
        seen = (
            f"first paint {seconds(page['first_paint_ms'])}, an update {seconds(page['update_ms'])}, "
            f"longest task {page['longest_task_ms']} ms, {page['heap_kib'] / 1024:.1f} MiB of JavaScript"
        )
        rows.append([f"`{path}`, {page['bytes'] / 1024:.0f} KiB", f"{page['cpu_us'] / 1000:.1f} ms", seen])
    taken, crowd = found["taken_in"], found["crowd"]
    memory = f"{taken['rss_mib']} MiB, {found['peak_mib']} at most"
    rows += [
        [f"all {found['objects']:,} objects taken in", seconds(taken["cpu_ms"]), memory],
        ["a change of one object, until a page hears of it", f"{found['change_cpu_ms']} ms", ""],
        [
            f"the same with {crowd} viewers that load `/` at each",
            f"{found['change_cpu_ms_with_crowd']} ms",
            f"{(found['change_cpu_ms_with_crowd'] - found['change_cpu_ms']) / crowd:.1f} ms a viewer",
        ],
    ]
    return table(["what", "CPU", "beside it"], rows)


OPENB = {"random": "Random", "bestfit": "BestFit", "fgd": "FGD"}
TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    "openb-policies": openb_policies,
    "compile": thousands,
    "engine-runs": engine,
    "philly-14-days": philly,
    "philly-28-days": philly,
    "dashboard": dashboard,
}
"""How a record is shown that has the output of a command; by the first name of the block."""


# To record a run


def machine() -> str:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.+)", info)
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    named = model[1].split(" @")[0] if model is not None else platform.machine()
    python, load = platform.python_version(), os.getloadavg()[0]
    return f"{os.cpu_count()} cores ({named}), {gib} GiB, Python {python}, load {load:.1f}"


def record(name: str, command: Sequence[str]) -> None:
    """Run a command and keep what it prints."""
    commit, here = output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip(), machine()
    kept = {
        "command": shlex.join([Path(command[0]).name, *map(_shown, command[1:])]),
        "date": output(["date", "-u", "+%F"]).strip(),
        "machine": here,
        "version": f"{__version__} ({commit})",
        "output": shortened(json.loads(output(command))),
    }
    (RECORDS / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _shown(word: str) -> str:
    """A word of a command; in place of a path that is of this machine alone, what it leads to."""
    if not Path(word).is_absolute():
        return word
    return "FOLDER" if Path(word).is_dir() else "FILE"


def shortened(found: Any) -> Any:
    """What a command printed, without what is LEFT_OUT of each mode of a replay."""
    if isinstance(found, list):
        return [shortened(each) for each in found]
    if isinstance(found, dict) and "modes" in found:
        modes = [{name: value for name, value in mode.items() if name not in LEFT_OUT} for mode in found["modes"]]
        return {**found, "modes": modes}
    return found


def output(command: Sequence[str]) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[3:])
