"""GPU3090 to GPU3092: sweeps, declarations that are several jobs."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3090",
        title="a variable of a sweep that env sets too",
        message="the sweep gives its jobs the variable {name}, and env sets it as well",
        why="Each job of the sweep has a value of its own in that variable. The keys of a matrix are its variables, in "
        "capitals.",
        fix="remove it from env, or give the key of the matrix another name",
    ),
    CodeEntry(
        code="GPU3091",
        title="a sweep too large",
        message="the sweep is {indices} jobs with more than {limit} keys and values each",
        why="All of its jobs have what their declaration says, each in an object of its own. Each 100 characters of a "
        "text count as one more.",
        fix="put texts into the image, a volume or a ConfigMap; or divide the sweep",
    ),
    CodeEntry(
        code="GPU3092",
        title="a job named as one of a sweep",
        message='"{job}" is the name of a job of the sweep "{sweep}" as well',
        why="The jobs of a sweep are called as the sweep is, with - and the index after that.",
        fix="give one of the two another name",
    ),
)
