"""Suggest the nearest known name for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.model.ids import JobId


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or "" where no name is near."""
    return _question(word, {name: name for name in known})


def nearest_job(word: str, known: Iterable[JobId]) -> str:
    """The same for a job by its name, or by `PROJECT/NAME`.

    By both: one of that name in the project that is written most like it; else, of a project that is known, one of its
    jobs by the name alone.
    """
    jobs = sorted(known, reverse=True)
    project, slash, name = word.partition("/")
    if not slash:
        return _question(word, {job.name: str(job) for job in jobs})
    namesakes = {str(job): str(job) for job in jobs if job.name == name}
    own = {job.name: str(job) for job in jobs if job.project == project}
    if namesakes or not own:
        return _question(word, namesakes or {str(job): str(job) for job in jobs})
    return _question(name, own)


def _question(word: str, told: Mapping[str, str]) -> str:
    import difflib  # noqa: PLC0415 - for mistakes only

    return "".join(f"did you mean {told[name]}?" for name in difflib.get_close_matches(word, sorted(told), n=1))
