"""The defaults of the command line: the project, as kubectl's namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuctl.cli.failures import Failure

if TYPE_CHECKING:
    from gpuctl.edit import Target

HOW = "name it: -p PROJECT or PROJECT/JOB; `gpuctl config project NAME` sets a default"


def job_named(name: str, project: str | None) -> Target:
    """The job of a name or of PROJECT/NAME: in the named project, else in the default one."""
    from gpuctl.edit import Target  # noqa: PLC0415 - only now

    before, slash, after = name.partition("/")
    if slash and project is not None and before != project:
        raise Failure("GPU9002", f"{name} and -p {project} name two projects", hint="leave out -p")
    owner = before if slash else project or default_project()
    if owner is None:
        raise Failure("GPU9002", f"the project of job {name} is not named", hint=HOW)
    return Target(kind="Job", name=after if slash else name, project=owner)


def project_meant(job: str, project: str | None) -> str | None:
    """The project of a job that is looked for: the named one, else the default one; None for all projects, or if the
    job is given as PROJECT/JOB."""
    return project or (None if "/" in job else default_project())


def default_project() -> str | None:
    """The project that `gpuctl config project` has set; None if none is."""
    from gpuctl.adapters.settings import read_settings  # noqa: PLC0415 - only now

    return read_settings().project
