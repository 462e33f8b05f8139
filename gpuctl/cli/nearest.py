"""Suggest the nearest known name for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.model.ids import JobId


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or "" where no name is near."""
    return _question(word, {name: name for name in known})


def nearest_job(word: str, known: Iterable[JobId]) -> str:
    """The same for a job by its name, or by `PROJECT/NAME`: in a project that has jobs, by the name alone."""
    jobs = sorted(known, reverse=True)
    project, slash, name = word.partition("/")
    own = [job for job in jobs if job.project == project]
    if slash and own:
        return _question(name, {job.name: str(job) for job in own})
    return _question(word, {str(job) if slash else job.name: str(job) for job in jobs})


def _question(word: str, told: Mapping[str, str]) -> str:
    import difflib  # noqa: PLC0415 - for mistakes only

    return "".join(f"did you mean {told[name]}?" for name in difflib.get_close_matches(word, sorted(told), n=1))
