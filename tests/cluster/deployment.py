"""The pod of the installed Deployment, as a process of this machine: its arguments, its files, its account."""

from __future__ import annotations

import base64
import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

import warm
from controlplane.ports import free_port
from controlplane.server import ControlPlane
from journal import journal
from unattended import PATIENCE_S, account_token

HOME = "/api/v1/namespaces/gpuctl-system"
POD_IP = "10.0.0.7"


class Pod:
    """The Deployment's program, as the cluster has it now; it runs until `end`.

    `folder` holds its volumes. Its arguments are adapted: paths of the volumes, ports, and the words that `instead`
    maps to others, such as names that no DNS has here. `ports` maps the container's ports to those here.
    """

    def __init__(self, plane: ControlPlane, folder: Path, env: Mapping[str, str], instead: Mapping[str, str]) -> None:
        deployment = plane.call("GET", "/apis/apps/v1/namespaces/gpuctl-system/deployments/gpuctl")
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        self._volumes = {volume["name"]: volume for volume in spec["volumes"]}
        self._plane = plane
        self.folder = folder
        self.ports: dict[int, int] = {}
        self.mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        self.refresh()
        self.log = folder / "log"
        kubeconfig = plane.write_kubeconfig(folder / "kubeconfig", account_token(plane))
        words = [self._here(word, instead) for word in container["args"]]
        own = {each["name"]: self._here(each["value"], instead) for each in container["env"] if "value" in each}
        line = [*words, "--kubeconfig", str(kubeconfig), "--interval", "1s"]
        with self.log.open("wb") as log:
            self._process = warm.Begun(line, log, env={**os.environ, **env, **own})

    def refresh(self) -> None:
        """Write the volumes, as the kubelet does."""
        for name, path in self.mounts.items():
            there = self.folder / path.lstrip("/")
            there.mkdir(parents=True, exist_ok=True)
            for file, content in self._content(self._volumes[name]).items():
                (there / file).write_bytes(content)

    def _content(self, volume: Mapping[str, Any]) -> dict[str, bytes]:
        if "configMap" in volume:
            data = self._plane.call("GET", f"{HOME}/configmaps/{volume['configMap']['name']}").get("data") or {}
            return {key: text.encode() for key, text in data.items()}
        if "secret" not in volume:
            assert "emptyDir" in volume, volume
            return {}
        data = self._plane.call("GET", f"{HOME}/secrets/{volume['secret']['secretName']}").get("data") or {}
        paths = {item["key"]: item["path"] for item in volume["secret"].get("items", ())}
        return {paths.get(key, key): base64.b64decode(text) for key, text in data.items() if key in paths or not paths}

    def _here(self, word: str, instead: Mapping[str, str]) -> str:
        for path in self.mounts.values():
            if word == path or word.startswith(f"{path}/"):
                return str(self.folder / word.lstrip("/"))
        host, _, port = word.rpartition(":")
        if host in {"0.0.0.0", "127.0.0.1"}:
            self.ports[int(port)] = free_port()
            return f"127.0.0.1:{self.ports[int(port)]}"
        return instead.get(word, word.replace("$(POD_IP)", POD_IP))

    def lines(self) -> list[dict[str, Any]]:
        """The pod's journal. A line that is none fails the test."""
        return journal(self.log)

    def codes(self, since: int) -> set[str]:
        """The codes that the journal tells after a number of lines."""
        return {str(line.get("code", "")) for line in self.lines()[since:] if line["event"] != "resolved"}

    def status(self) -> dict[str, Any]:
        """The pod's answer at /status; {} while it gives none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[8080]}/status", timeout=60) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (URLError, ValueError, OSError):
            return {}

    def end(self) -> None:
        """End the process as a pod is ended, and wait for it."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
