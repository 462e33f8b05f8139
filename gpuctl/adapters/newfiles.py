"""Writes new files in a folder: all or none, none through a link, and none over something that exists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR

from gpuctl.app.editing_ports import not_edited

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewFolder:
    """A folder that is the top of a repository, or becomes it. `make` makes a repository in a folder."""

    def __init__(self, folder: Path, make: Callable[[Path], object]) -> None:
        self._folder = folder
        self._make = make

    def outer(self) -> str:
        """The top of the repository around the folder; empty if the folder is itself a repository's top, or is in
        none."""
        here = self._folder.resolve()
        top = next((each for each in (here, *here.parents) if os.path.lexists(each / ".git")), here)
        return "" if top == here else str(top)

    def taken(self, paths: Iterable[str]) -> list[str]:
        """The paths that exist already, or that have a file or a link on their way."""
        return [path for path in paths if self._is_taken(path)]

    def create(self, files: Mapping[str, bytes]) -> bool:
        """Write the files; first make the folder and its repository if there is none. Returns whether a repository was
        made.

        Raises NotEdited GPU6404, and then leaves none of the files; an empty repository stays.
        """
        done: list[str] = []
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            is_new = not os.path.lexists(self._folder / ".git")
            if is_new:
                self._make(self._folder)
            for path, content in files.items():
                self._write(path, content, done)
        except OSError as error:
            self._undo(done)
            path = str(error.filename or self._folder)
            raise not_edited("GPU6404", path=path, why=error.strerror or str(error)) from error
        return is_new

    def _is_taken(self, path: str) -> bool:
        *folders, _ = parts = Path(path).parts
        for count in range(1, len(parts) + 1):
            try:
                mode = self._folder.joinpath(*parts[:count]).lstat().st_mode
            except FileNotFoundError:
                return False
            except OSError:
                return True
            if count > len(folders) or not S_ISDIR(mode):
                return True
        return False

    @contextmanager
    def _parent(self, path: str, *, make: bool) -> Iterator[int]:
        """The open folder of a file. It is opened step by step, so that no step is a link."""
        here = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in Path(path).parts[:-1]:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here)
                below = os.open(name, _FOLDER, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def _write(self, path: str, content: bytes, done: list[str]) -> None:
        with self._parent(path, make=True) as parent:
            number = os.open(Path(path).name, _FILE, 0o666, dir_fd=parent)
            done.append(path)
            with os.fdopen(number, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())

    def _undo(self, done: list[str]) -> None:
        """Delete the files that were written."""
        for path in reversed(done):
            with suppress(OSError), self._parent(path, make=False) as parent:
                os.unlink(Path(path).name, dir_fd=parent)
