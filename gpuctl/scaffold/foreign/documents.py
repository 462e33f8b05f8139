"""The files that declare what was found, one for each thing; what can't be declared is a comment in it."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.compile.amounts import label
from gpuctl.compile.declarations import KINDS
from gpuctl.compile.shape import fields_at
from gpuctl.diag.escapes import printable
from gpuctl.edit import Refused, Value, add
from gpuctl.scaffold.foreign.values import Found, Left, Thing

_API = "gpuctl.dev/v1"
_LONGEST_COMMENT = 180
_MOST_COMMENTS = 40


def made(found: Found, cluster_dir: str) -> tuple[dict[str, bytes], dict[str, Thing], list[Left]]:
    """The files by path, the thing that each declares, and what could not be written. Cost: linear.

    A job is declared suspended: it is running in the other system.
    """
    files: dict[str, bytes] = {}
    things: dict[str, Thing] = {}
    left: list[Left] = []
    for thing in found.things:
        try:
            path = f"{cluster_dir}/{_place(thing)}"
            content = _content(path, thing)
        except ValueError:
            left.append(Left(what=str(thing.target), why=_of_name(thing)))
            continue
        except Refused as refused:
            left.append(Left(what=str(thing.target), why=str(refused)))
            continue
        if path in files:
            left.append(Left(what=str(thing.target), why="it is there twice"))
        else:
            files[path], things[path] = content, thing
    return files, things, left


def _place(thing: Thing) -> str:
    """The path of a thing's file. Raises ValueError for a name that no declaration can have."""
    name = label(thing.target.name)
    if thing.target.kind == "Department":
        return f"departments/{name}.yaml"
    if thing.target.kind == "Project":
        return f"projects/{name}/project.yaml"
    return f"projects/{label(thing.target.project)}/jobs/{name}.yaml"


def _of_name(thing: Thing) -> str:
    wrong = "its project" if thing.target.kind == "Job" and _is_label(thing.target.name) else "it"
    return f"{wrong} has a name that no declaration can have: lower-case letters, digits and '-', at most 63"


def _is_label(text: str) -> bool:
    try:
        return bool(label(text))
    except ValueError:
        return False


def _content(path: str, thing: Thing) -> bytes:
    target = thing.target
    metadata: dict[str, Value] = {"name": target.name}
    spec = dict(thing.spec)
    if target.kind == "Job":
        metadata["project"] = target.project
        spec["suspend"] = True
    order = fields_at(KINDS[target.kind], ("spec",))
    body: Mapping[str, Value] = {
        "apiVersion": _API,
        "kind": target.kind,
        "metadata": metadata,
        "spec": {name: spec[name] for name in order if name in spec},
    }
    comments = "".join(f"# not said: {_comment(each)}\n" for each in thing.unsaid[:_MOST_COMMENTS])
    return comments.encode() + add(path, None, body)


def _comment(text: str) -> str:
    return printable(text.encode(errors="replace").decode())[:_LONGEST_COMMENT]
