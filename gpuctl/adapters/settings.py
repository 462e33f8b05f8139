"""The user's own defaults for the command line: `gpuctl/config.yaml` in XDG_CONFIG_HOME or ~/.config."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpuctl.adapters.files import read_regular, replace_file
from gpuctl.app.editing_ports import NotEdited, not_edited

MOST_BYTES = 64 << 10
_FIELDS = frozenset({"project"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user has set."""

    project: str | None = None


def settings_file() -> Path | None:
    """The path of the settings; None for a user without a home."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not Path(base).is_absolute():
        base = os.environ.get("HOME", "")
        if not Path(base).is_absolute():
            return None
        base = str(Path(base, ".config"))
    return Path(base, "gpuctl", "config.yaml")


def read_settings() -> Settings:
    """The settings; without a file, none is set. Raises NotEdited GPU6119 if the file can't be used."""
    file = settings_file()
    content = _content(file) if file is not None else None
    return Settings() if file is None or content is None else _parsed(file, content)


def write_project(project: str | None) -> Path:
    """Set the default project, or remove it; the rest of the file stays. Raises NotEdited."""
    from gpuctl.compile.reading import parse_documents  # noqa: PLC0415 - only to write
    from gpuctl.edit.nodes import root_of  # noqa: PLC0415
    from gpuctl.edit.splices import REMOVED, applied, change  # noqa: PLC0415

    file = settings_file()
    if file is None:
        raise not_edited("GPU6119", path="config.yaml", why="neither XDG_CONFIG_HOME nor HOME names a folder")
    before = _content(file)
    if before is not None:
        _parsed(file, before)
    text = (before or b"").decode("utf-8", "replace")
    if not parse_documents(str(file), before or b"")[0]:
        text += f"project: {project}\n" if project is not None else ""
    else:
        splice = change(text, root_of(text), ("project",), REMOVED if project is None else project, lambda _: ())
        text = applied(text, [splice] if splice is not None else [])
    _parsed(file, text.encode())
    replace_file(file, file.parent, before, text.encode())
    return file


def _content(file: Path) -> bytes | None:
    try:
        content = read_regular(file, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(file, f"it can't be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise _unusable(file, "it is larger than 64 KiB")
    return content


def _parsed(file: Path, content: bytes) -> Settings:
    from gpuctl.compile.amounts import label  # noqa: PLC0415 - only where there is a file
    from gpuctl.compile.reading import parse_documents  # noqa: PLC0415

    documents, diagnostics = parse_documents(str(file), content)
    if diagnostics:
        raise _unusable(file, f"line {diagnostics[0].span.line}: {diagnostics[0].message}")
    data = documents[0].data if documents else {}
    if len(documents) > 1 or not isinstance(data, dict):
        raise _unusable(file, "it is not one mapping")
    unknown = sorted(data.keys() - _FIELDS)
    if unknown:
        raise _unusable(file, f'there is no setting "{unknown[0]}"')
    project = data.get("project")
    try:
        return Settings(project=None if project is None else label(project if isinstance(project, str) else ""))
    except ValueError:
        raise _unusable(file, "project is no name of a project: lower-case letters, digits and - inside") from None


def _unusable(file: Path, why: str) -> NotEdited:
    return not_edited("GPU6119", path=str(file), why=why)
