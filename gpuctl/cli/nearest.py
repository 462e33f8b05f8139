"""Suggest the nearest known name for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.model.ids import JobId


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or "" if no known name is similar."""
    return _question(word, {name: name for name in known})


def nearest_job(word: str, known: Iterable[JobId]) -> str:
    """As `nearest`, for a job by its name, or by `PROJECT/NAME`.

    By `PROJECT/NAME`: a job of that name in the project with the most similar name; else, if the project is known, the
    most similar job of it.
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
