"""The form of an attempt: a file in team-a's folder with which a person tries to reach what is team-b's."""

from __future__ import annotations

from dataclasses import dataclass

THEIRS = "gpu-isle-team-b"


@dataclass(frozen=True)
class Attempt:
    """`field`: the field that the attempt uses, by its path in the form; "" for the file as a whole. `text`: the
    file."""

    field: str
    text: str


def job(name: str, spec: str = "", *, project: str = "team-a", more: str = "", meta: str = "") -> str:
    head = f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: {project}{meta}}}\n"
    return f"{head}spec: {{image: x{spec}}}\n{more}"
