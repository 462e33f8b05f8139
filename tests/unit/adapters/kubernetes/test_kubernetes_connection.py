"""Finding the server and who we are: every mistake in a kubeconfig is told as what it is."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import ClosedPoolError
from wire import QUICK, answer, kubeconfig, wired

from gpuctl.adapters.kubernetes import connect
from gpuctl.adapters.kubernetes.requests import Request, Requests
from gpuctl.adapters.kubernetes.terminal import PodSessions
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.k8s import kinds

HTTPS = "https://127.0.0.1:1"
TOKEN = {"token": "t"}
GET = Request(verb="list", kind=kinds.POD, path="/api/v1/pods", what="list Pod")


def refused(path: str | None, context: str | None = None) -> tuple[str, str]:
    with pytest.raises(ClusterUnavailable) as found:
        connect(path, context)
    return found.value.code, str(found.value)


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A user whose credentials a command gives."""
    command = folder / "plugin"
    command.write_text(f"#!{sys.executable}\n{script}")
    command.chmod(0o700)
    api = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": api, "command": str(command), "interactiveMode": "Never"}}


def test_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = refused(str(tmp_path / "none"))
    assert (code, text) == ("GPU7010", f"there is no kubeconfig: {tmp_path}/none does not exist")
    assert refused("~no-such-user/config")[0] == "GPU7010"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert refused(None)[0] == "GPU7010"


def test_a_pod_without_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    assert refused(None) == (
        "GPU7013",
        "the pod's service account gives no credentials: Service token file does not exist.",
    )


@pytest.mark.parametrize("text", ["", "[]", "a: [", "{}", '{"contexts": [{"name": "lab"}], "current-context": "lab"}'])
def test_what_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert refused(str(path))[0] in {"GPU7011", "GPU7012"}


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    assert refused(str(tmp_path))[0] == "GPU7011"


def test_no_such_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, HTTPS, TOKEN)
    assert refused(path, "prod") == ("GPU7012", f"{path} has no context named prod; it has lab")


def test_no_context_chosen(tmp_path: Path) -> None:
    path = Path(kubeconfig(tmp_path, HTTPS, TOKEN))
    path.write_text(json.dumps({**json.loads(path.read_text()), "current-context": ""}))
    assert refused(str(path)) == ("GPU7012", f"{path} has no context chosen; it has lab")


def test_no_credentials(tmp_path: Path) -> None:
    code, text = refused(kubeconfig(tmp_path, HTTPS))
    assert (code, "names no token" in text) == ("GPU7013", True)


def test_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, HTTPS, {"client-certificate": "/none.crt", "client-key": "/none.key"})
    code, text = refused(path)
    assert (code, "/none.crt" in text) == ("GPU7011", True)


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    for name in ("c.crt", "c.key"):
        (tmp_path / name).write_text("no certificate")
    user = {"client-certificate": str(tmp_path / "c.crt"), "client-key": str(tmp_path / "c.key")}
    code, text = refused(kubeconfig(tmp_path, HTTPS, user))
    assert (code, "its certificates" in text) == ("GPU7011", True)


@pytest.mark.parametrize("proxy", ["squid:3128", "http://[::1", "https://:99999", "http://a\nb", ["x"]])
def test_a_proxy_that_is_no_address(tmp_path: Path, proxy: object) -> None:
    path = Path(kubeconfig(tmp_path, HTTPS, TOKEN))
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["proxy-url"] = proxy
    path.write_text(json.dumps(config))
    code, text = refused(str(path))
    assert (code, "its proxy" in text) == ("GPU7011", True)


def test_a_login_command_that_fails_is_told_in_its_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    user = plugin(tmp_path, 'import sys; print("the session has ended", file=sys.stderr); sys.exit(3)')
    code, text = refused(kubeconfig(tmp_path, HTTPS, user))
    assert (code, "process returned 3. the session has ended" in text) == ("GPU7013", True)
    assert capfd.readouterr() == ("", "")


def test_a_login_command_that_is_not_there(tmp_path: Path) -> None:
    api = "client.authentication.k8s.io/v1"
    code, text = refused(kubeconfig(tmp_path, HTTPS, {"exec": {"apiVersion": api, "command": "/none/login"}}))
    assert (code, "/none/login" in text) == ("GPU7013", True)


def test_the_token_of_a_login_command_is_carried(tmp_path: Path) -> None:
    status = {"token": "fresh", "expirationTimestamp": "2999-01-01T00:00:00Z"}
    said = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    connection = connect(kubeconfig(tmp_path, HTTPS, plugin(tmp_path, f"print({said!r})")))
    assert connection.headers()["authorization"] == "Bearer fresh"
    connection.close()


def test_the_id_token_of_an_identity_provider_is_carried(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 32_503_680_000}).encode()).decode().rstrip("=")
    settings = {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "gpuctl", "id-token": f"e30.{claims}.sig"}
    user = {"auth-provider": {"name": "oidc", "config": settings}}
    connection = connect(kubeconfig(tmp_path, HTTPS, user))
    assert connection.headers()["authorization"] == f"Bearer e30.{claims}.sig"
    connection.close()


def test_an_identity_provider_that_does_not_answer(tmp_path: Path) -> None:
    expired = base64.urlsafe_b64encode(b'{"exp": 1}').decode().rstrip("=")
    settings = {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "gpuctl", "id-token": f"e30.{expired}.sig"}
    user = {"auth-provider": {"name": "oidc", "config": {**settings, "refresh-token": "r", "client-secret": "s"}}}
    code, text = refused(kubeconfig(tmp_path, HTTPS, user))
    assert (code, "127.0.0.1" in text) == ("GPU7011", True)


def test_a_token_a_password_and_no_credentials_on_a_plain_address(tmp_path: Path) -> None:
    for user, header in ((TOKEN, "Bearer t"), ({"username": "u", "password": "p"}, "Basic dTpw"), ({}, None)):
        connection = connect(kubeconfig(tmp_path, "http://127.0.0.1:1", user))
        assert connection.headers().get("authorization") == header
        connection.close()


ANN = {"as": "ann", "as-groups": ["team", "all"], "as-uid": "7", "as-user-extra": {"Why/x": ["a", "b"]}}


def test_a_user_acts_as_another_as_kubectl_has_it(tmp_path: Path) -> None:
    with wired(tmp_path, answer(200), user={**TOKEN, **ANN}) as (wire, connection):
        body = Request(verb="patch", kind=kinds.POD, path="/x", what="patch", method="PATCH", body=b"{}")
        Requests(connection, QUICK).send(body)
        sent = wire.headers[0].splitlines()
        assert [line for line in sent if line.lower().startswith("impersonate")] == [
            "Impersonate-User: ann", "Impersonate-Group: team", "Impersonate-Group: all", "Impersonate-Uid: 7",
            "Impersonate-Extra-why%2Fx: a", "Impersonate-Extra-why%2Fx: b",
        ]  # fmt: skip
        assert "content-type: application/json" in sent
        with pytest.raises(ClusterUnavailable, match="acts as another one"):
            PodSessions(connection).open("/x", "a command")


@pytest.mark.parametrize(
    "more",
    [{"as-groups": ["team"]}, {"as": 7}, {"as": "a", "as-groups": "b"}, {"as": "a\nX: y"},
     {"as": "a", "as-user-extra": ["x"]}, {"as": "a", "as-user-extra": {"k": "v"}}, {"as": "\u00e9"}],
)  # fmt: skip
def test_a_user_that_acts_as_it_can_not_be_said_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    assert refused(kubeconfig(tmp_path, HTTPS, {**TOKEN, **more}))[0] == "GPU7011"


def test_several_files_are_one_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [kubeconfig(tmp_path, HTTPS, TOKEN, "one"), str(tmp_path / "none")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))
    connection = connect(None, "lab")
    assert (connection.server, connection.headers()["authorization"]) == (HTTPS, "Bearer t")
    connection.close()


def test_what_is_closed_keeps_no_socket_open_whatever_still_refers_to_it(tmp_path: Path) -> None:
    """A controller looks through its garbage rarely, and a process may have 1,024 files open."""
    before = sockets()
    held = []
    for _ in range(3):
        with wired(tmp_path, answer(200, {"kind": "PodList"})) as (_, connection):
            Requests(connection, QUICK).send(GET)
            held.append(connection.pool.connection_from_url(connection.server))
    assert sockets() == before


def test_renewed_credentials_close_what_the_old_ones_had_open(tmp_path: Path) -> None:
    with wired(tmp_path, answer(200, {"kind": "PodList"}), user={"token": "old"}) as (wire, connection):
        Requests(connection, QUICK).send(GET)
        held = connection.pool.connection_from_url(connection.server)
        kubeconfig(tmp_path, wire.url, {"token": "new"})
        assert connection.renew(connection.headers())
        with pytest.raises(ClosedPoolError):
            held.request("GET", "/")


def sockets() -> int:
    """How many this process has open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder's own, which is read here
            found += str(each.readlink()).startswith("socket:")
    return found


def test_the_package_is_not_imported_before_a_connection_is_made() -> None:
    script = "import sys, gpuctl.adapters.kubernetes; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
