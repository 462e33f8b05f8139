"""The jobs of TR-4858, sections 4.8 to 4.10, as values."""

from __future__ import annotations

from worlds import job, project

from gpuctl.model.declared import Project
from gpuctl.model.job import Job, JobType

QUOTAS = {"team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
INTERACTIVE = {"a-1-1-jupyter", "b-1-g06", "b-2-g04", "c-1-g05", "c-2-g03", "c-3-g02"}
SECTION_4_8 = {
    "team-a/a-1-1-jupyter": 1000, "team-a/a-1-g": 1000, "team-a/a-2-gg": 2000, "team-b/b-1-g06": 600,
    "team-b/b-2-g04": 400, "team-b/b-3-g": 1000, "team-b/b-4-gg": 2000, "team-c/c-1-g05": 500, "team-c/c-2-g03": 300,
    "team-c/c-3-g02": 200, "team-c/c-4-gg": 2000, "team-c/c-5-g": 1000, "team-d/d-1-gggg": 4000,
}  # fmt: skip
SECTION_4_9 = {"team-d/d-2-gg": 2000, "team-d/d-3-gg": 2000}
SECTION_4_10 = {"team-a/a-3-gg": 2000, "team-a/a-4-gg": 2000, "team-b/b-5-gg": 2000, "team-c/c-6-gg": 2000}


def story_job(name: str) -> Job:
    """One of the report's jobs."""
    gpus = (SECTION_4_8 | SECTION_4_9 | SECTION_4_10)[name]
    interactive = name.partition("/")[2] in INTERACTIVE
    return job(name, gpus, kind=JobType.INTERACTIVE if interactive else JobType.TRAINING)


def teams() -> list[Project]:
    """The four teams."""
    return [project(name, quota) for name, quota in QUOTAS.items()]
