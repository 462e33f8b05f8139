"""Names for completion in a shell: of the jobs and projects that the current folder's repository declares.

They are searched in the text, without compiling it: a shell waits for them. If nothing can be read there are none, and
nothing is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

_DOCUMENTS = re.compile(r"^---", re.MULTILINE)
_KIND = re.compile(r"^kind:[ \t]+[\"']?(Job|Project)\b", re.MULTILINE)
_METADATA = re.compile(r"^metadata:([^\n]*(?:\n[ \t][^\n]*)*)", re.MULTILINE)
_NAMED = re.compile(r"\b(name|project)[\"']?:[ \t]+[\"']?([A-Za-z0-9.-]+)")


def job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of jobs: of the chosen project; without one, of all projects, also as PROJECT/JOB."""
    from gpuctl.cli.defaults import default_project  # noqa: PLC0415 - only now

    del param
    meant = ctx.params.get("project") or default_project()
    named = [(owner, name) for kind, name, owner in _declared(ctx) if kind == "Job" and meant in {None, owner}]
    found = {name for _, name in named} | {f"{owner}/{name}" for owner, name in named}
    return sorted(each for each in found if each.startswith(incomplete))


def project_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Projects by their names."""
    del param
    return sorted({name for kind, name, _ in _declared(ctx) if kind == "Project" and name.startswith(incomplete)})


project_option = partial(click.option, "-p", "--project", shell_complete=project_names)
"""The option that names a project; with its help."""


def _declared(ctx: click.Context) -> Iterator[tuple[str, str, str]]:
    """Kind, name and project of each job and project, as far as the text shows them."""
    from gpuctl.adapters.files import read_files, top_of  # noqa: PLC0415 - only now
    from gpuctl.app.ports import WorldFault  # noqa: PLC0415

    folder = ctx.params.get("path") or top_of(Path.cwd()) / "clusters"
    try:
        texts = [file.content.decode(errors="replace") for _, file in read_files([str(folder)])]
    except (OSError, WorldFault):
        return
    for text in texts:
        for document in _DOCUMENTS.split(text):
            kind, metadata = _KIND.search(document), _METADATA.search(document)
            named = dict(_NAMED.findall(metadata[1])[:2]) if metadata else {}
            if kind and "name" in named:
                yield kind[1], named["name"], named.get("project", "")
