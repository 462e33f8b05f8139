"""The working tree that a person edits: its files, commits of them, and the code host where they are reviewed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.adapters.files import replace_file, top_of
from gpuctl.adapters.gitcommit import begin_commit
from gpuctl.app.editing_ports import Draft, ReviewPlace
from gpuctl.app.forge_ports import Forge

if TYPE_CHECKING:
    from gpuctl.adapters.forge import ForgeOptions


class FolderCheckout:
    """The working tree that a folder is in. Implements the port Checkout."""

    def __init__(self, folder: Path, connect: Callable[[ForgeOptions], AbstractContextManager[Forge]]) -> None:
        self._folder = folder
        self._connect = connect

    def write(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """Replace a file of the working tree."""
        replace_file(Path(path), top_of(self._folder), before, after)

    def draft(self, before: Mapping[str, bytes | None], branch: str | None) -> Draft:
        """Prepare a commit of files of the working tree."""
        return begin_commit(self._folder, before, branch)

    @contextmanager
    def forge(self, place: ReviewPlace) -> Iterator[Forge]:
        """The code host of a remote, found by its address; the token comes from the environment."""
        from gpuctl.adapters.forge import ForgeOptions  # noqa: PLC0415 - slow to import
        from gpuctl.adapters.forge.remote import hosted_at  # noqa: PLC0415

        found = hosted_at(place.remote_url, os.environ)
        with self._connect(ForgeOptions(host=found.host, repository=found.repository)) as opened:
            yield opened
