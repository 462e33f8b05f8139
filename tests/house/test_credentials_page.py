"""docs/install.md, "Credentials for Git": the deploy key and the GitHub App, each against a server on this machine.

What no machine without GitHub can try: that GitHub itself takes the App's request. It is checked as its REST
documentation has it: the signature, the claims, and how long they last.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from codehosts import Call, CodeHost, Reply, served
from controlplane.ports import free_port

from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.ports import SourceUnavailable
from gpuctl.install import Installation, all_objects

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs" / "install.md").read_text().partition("## Credentials for Git\n")[2].partition("\n## ")[0]
_TOKEN, MAKE_KEY, DEPLOY_KEY, APP = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
APP_ID, INSTALLATION_ID = "12345", "678"


def sh(lines: str, folder: Path, **env: str) -> str:
    words = ["bash", "-e", "-o", "pipefail", "-c", lines]
    done = subprocess.run(words, cwd=folder, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Apps(CodeHost):
    """GitHub, for tokens of an App's installations."""

    def __init__(self, public_key: Path) -> None:
        super().__init__()
        self._public_key = public_key

    def serve(self, call: Call) -> Reply:
        if (call.method, call.path) != ("POST", f"/app/installations/{INSTALLATION_ID}/access_tokens"):
            return 404, {}, {"message": "Not Found"}
        signed, _, signature = call.headers["authorization"].removeprefix("Bearer ").rpartition(".")
        head, claims = (json.loads(_decoded(part)) for part in signed.split("."))
        now = time.time_ns() // 10**9
        lasts = claims["iat"] <= now < claims["exp"] <= claims["iat"] + 600
        if head != {"alg": "RS256", "typ": "JWT"} or claims["iss"] != APP_ID or not lasts:
            return 401, {}, {"message": "A JSON web token could not be decoded"}
        file = self._public_key.with_name("signature")
        file.write_bytes(_decoded(signature))
        words = ["openssl", "dgst", "-sha256", "-verify", str(self._public_key), "-signature", str(file)]
        if subprocess.run(words, input=signed.encode(), capture_output=True, check=False).returncode:
            return 401, {}, {"message": "A JSON web token could not be decoded"}
        return 201, {}, {"token": "ghs_x", "expires_at": "2026-01-01T00:00:00Z"}


def _decoded(part: str) -> bytes:
    assert not part.endswith("=")
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.mark.parametrize("key", ["app.pem", "another.pem"])
def test_a_github_app_gets_a_token_for_its_own_key_alone(key: str, tmp_path: Path) -> None:
    for name in {key, "app.pem"}:
        sh(f"openssl genrsa -out {name} 2048", tmp_path)
    sh("openssl rsa -in app.pem -pubout -out public.pem", tmp_path)
    (tmp_path / key).rename(tmp_path / "app.pem")
    with served(Apps(tmp_path / "public.pem")) as host:
        assert "https://api.github.com" in APP
        lines = APP.replace("https://api.github.com", host.url)
        told: Any = json.loads(sh(lines, tmp_path, APP_ID=APP_ID, INSTALLATION_ID=INSTALLATION_ID))
    assert told.get("token") == ("ghs_x" if key == "app.pem" else None)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server for ssh that lets in the deploy key of the page."""
    if SSHD is None:
        pytest.skip("no sshd on this machine: install Debian's package openssh-server")
    number = free_port()
    sh(MAKE_KEY, tmp_path)
    sh("ssh-keygen -q -t ed25519 -N '' -f host-key", tmp_path)
    options = {
        "Port": number, "ListenAddress": "127.0.0.1", "HostKey": tmp_path / "host-key", "PidFile": "none",
        "AuthorizedKeysFile": tmp_path / "deploy-key.pub", "StrictModes": "no", "UsePAM": "no",
        "PasswordAuthentication": "no", "KbdInteractiveAuthentication": "no", "PermitRootLogin": "prohibit-password",
    }  # fmt: skip
    (tmp_path / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd does not begin without it
    with (tmp_path / "sshd.log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=log)
    try:
        yield number
    finally:
        server.terminate()
        server.wait(60)


def installed_ssh(folder: Path, port: int) -> str:
    """The command by which the installed Deployment reaches Git, with the Secret's files in a folder."""
    made = all_objects(Installation(image="x", repo="git@git.example.com:gpus.git", path="c"))
    (deployment,) = [body for body in made if body["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (command,) = [each["value"] for each in container["env"] if each["name"] == "GIT_SSH_COMMAND"]
    (mount,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "git"]
    assert f"{mount}/ssh-privatekey" in command
    return f"{command.replace(mount, str(folder))} -p {port}"


def test_a_deploy_key_reads_the_repository_of_the_known_host_alone(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = WorkingCopy.create(tmp_path / "gpus")
    copy.write("c/cluster.yaml", b"kind: Cluster\n")
    commit = copy.commit("first", 1_596_000_000_000)
    scan = DEPLOY_KEY.splitlines()[0]
    assert scan == "ssh-keyscan git.example.com > known_hosts"
    here = scan.replace("git.example.com", f"-p {port} 127.0.0.1")
    sh(f"for _ in $(seq 900); do {here} && [ -s known_hosts ] && break || sleep 0.1; done", tmp_path)
    shutil.copy(tmp_path / "deploy-key", tmp_path / "ssh-privatekey")
    monkeypatch.setenv("GIT_SSH_COMMAND", installed_ssh(tmp_path, port))
    user = sh("id -un", tmp_path).strip()

    def head(work: str) -> str:
        source = GitSource(f"{user}@127.0.0.1:{copy.folder}", "c", "main", tmp_path / work)
        try:
            return source.head()
        finally:
            source.close()

    assert head("work") == commit, (tmp_path / "sshd.log").read_text()
    another = (tmp_path / "deploy-key.pub").read_text().rpartition(" ")[0]
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {another}\n")
    with pytest.raises(SourceUnavailable, match="Host key verification failed"):
        head("other")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
def test_the_secret_of_the_page_has_what_the_deployment_reads(tmp_path: Path) -> None:
    for name in ("deploy-key", "known_hosts"):
        (tmp_path / name).write_text("x")
    made = yaml.safe_load(sh(DEPLOY_KEY.splitlines()[1].partition(" | ")[0], tmp_path))
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("gpuctl-git", "gpuctl-system")
    assert made["data"].keys() == {"ssh-privatekey", "known_hosts"}
