"""Pods that a real API server refuses: Pod Security, an admission webhook that says no or is dead, an admission policy.

Each refusal is told in the server's words wherever a person or a program looks, and gives its GPUs back.
"""

from __future__ import annotations

import json
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner
from controlplane.server import ControlPlane
from test_pod_failures import Ahead
from town import Town, town_on
from unattended import at_last

from gpuctl.adapters.kubernetes.incidents import EventReader
from gpuctl.adapters.kubernetes.recorder import EventRecorder
from gpuctl.app.cycle import CycleReport
from gpuctl.app.metrics import measure
from gpuctl.app.notes import notes_of
from gpuctl.cli.main import gpuctl
from gpuctl.diag.wording import reason_text
from gpuctl.k8s.names import REPORTER
from gpuctl.observe.incidents import ASK_AFTER_MS

WORDS: Mapping[str, str] = {
    "by-level": 'violates PodSecurity "restricted:latest": ',
    "by-webhook": "denied the request: no pods on Thursdays",
    "by-dead-webhook": 'failed calling webhook "dead.example.com": ',
    "by-policy": "denied request: images have a digest",
}
"""What the server says of each job's pods."""
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
START_TIMEOUT_MS = 900_000


class Refuses(BaseHTTPRequestHandler):
    """An admission webhook that refuses all."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"message": "no pods on Thursdays", "code": 403}
        answer = {**review, "response": {"uid": review["request"]["uid"], "allowed": False, "status": status}}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library has it
        del format, args


@contextmanager
def webhook(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of one that listens, and what its certificate is checked against."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    about = ["-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *about]
    subprocess.run(line, check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/", b64encode(certificate.read_bytes()).decode()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refusers(town: Town, url: str, authority: str) -> dict[str, dict[str, Any]]:
    """What refuses pods of one job each in the project's namespace, by its path."""
    space = {"matchLabels": {"kubernetes.io/metadata.name": town.namespace}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}

    def hook(name: str, job: str, url: str) -> dict[str, Any]:
        return {
            "name": name, "clientConfig": {"url": url, "caBundle": authority}, "rules": [pods],
            "namespaceSelector": space, "objectSelector": {"matchLabels": {"gpuctl.dev/job": job}},
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }  # fmt: skip

    match = {
        "resourceRules": [pods], "namespaceSelector": space,
        "objectSelector": {"matchLabels": {"gpuctl.dev/job": "by-policy"}},
    }  # fmt: skip
    says = [{"expression": "object.spec.containers.all(c, c.image.contains('@'))", "message": "images have a digest"}]
    hooks = [
        hook("no.example.com", "by-webhook", url), hook("dead.example.com", "by-dead-webhook", "https://127.0.0.1:1/")
    ]  # fmt: skip
    return {
        "validatingwebhookconfigurations": {"webhooks": hooks},
        "validatingadmissionpolicies": {
            "spec": {"failurePolicy": "Fail", "matchConstraints": match, "validations": says}
        },
        "validatingadmissionpolicybindings": {
            "spec": {"policyName": town.name, "validationActions": ["Deny"]},
        },
    }


@dataclass
class Scene:
    """A town in which four jobs are let go whose pods are refused, and what is told of it."""

    town: Town
    clock: Ahead
    recorder: EventRecorder
    report: CycleReport | None = None

    def cycle(self) -> CycleReport:
        """One cycle, with its Events."""
        report = self.town.cycle()
        self.recorder.record(notes_of(report, self.report))
        self.report = report
        return report

    def words(self) -> dict[str, str]:
        """The server's words of each job, by the controller."""
        return {run.job.name: run.problem.message for run in self.cycle().state.runs if run.problem is not None}

    def run(self, *line: str) -> str:
        """A command as an administrator types it."""
        where = ["--kubeconfig", str(self.town.plane.kubeconfig)]
        result = CliRunner().invoke(gpuctl, [*line, *where], prog_name="gpuctl")
        assert result.exit_code == 0, result.output
        return result.stdout


def policy_is_in_force(town: Town) -> bool:
    """The server takes a moment to read a new policy."""
    labels = {"gpuctl.dev/job": "by-policy"}
    pod = {"metadata": {"generateName": "x-", "labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    controller = "system:serviceaccount:kube-system:job-controller"
    path = f"/api/v1/namespaces/{town.namespace}/pods?dryRun=All"
    return WORDS["by-policy"] in str(town.plane.refused("POST", path, pod, user=controller))


def is_told(told: Mapping[str, str]) -> bool:
    return all(words in told.get(name, "") for name, words in WORDS.items())


@pytest.fixture(scope="module")
def scene(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The job that Pod Security refuses ran before the level was raised, and keeps the pod template of then."""
    folder = tmp_path_factory.mktemp("webhook")
    with town_on(plane_with_gpuctl, "refused pods") as town, webhook(folder) as where:
        connection = town.cluster.requests.connection
        with closing(EventReader(connection)) as reader, closing(EventRecorder(connection, "town")) as recorder:
            clock = Ahead()
            town.context = replace(town.context, clock=clock, incidents=reader)
            made = Scene(town, clock, recorder)
            town.jobs["by-level"] = ", gpus: 1"
            town.comes_to(**{"by-level": "Running"})
            town.jobs["by-level"] = ", gpus: 1, suspend: true"
            town.comes_to(**{"by-level": "Queued"})
            town.more_of_cluster = "  security: {podSecurity: restricted}\n"
            for path, body in refusers(town, *where).items():
                town.plane.call("POST", f"{ADMISSION}/{path}", {"metadata": {"name": town.name}, **body})
            at_last(lambda: policy_is_in_force(town))
            for name in WORDS:
                town.jobs[name] = ", gpus: 1"
            town.until(lambda: [*town.phases().values()] == ["Starting"] * len(WORDS))
            clock.by_ms += ASK_AFTER_MS
            at_last(lambda: is_told(made.words()), made.words)
            yield made
            for path in refusers(town, *where):
                town.plane.call("DELETE", f"{ADMISSION}/{path}/{town.name}")


@pytest.mark.parametrize("name", WORDS)
def test_the_servers_words_are_told_wherever_one_looks(name: str, scene: Scene) -> None:
    def problem() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(scene.run("get", name, "-p", "a", "-o", "json"))["problem"]
        return found

    words = WORDS[name]
    # Events are read of a run some seconds after it was let go.
    at_last(lambda: words in problem()["message"], problem)
    assert problem()["reason"] == "FailedCreate"
    assert problem()["remedy"].startswith("The server refuses its pods")
    (row,) = [line for line in scene.run("list", "-p", "a").splitlines() if line.startswith(f"{name} ")]
    assert row.split()[1] == "FailedCreate"
    explained = scene.run("explain", name, "-p", "a")
    for told in (scene.run("get", name, "-p", "a"), explained):
        assert "FailedCreate: Error creating: " in told
        assert words in told
    assert "Nothing to do" not in explained
    found = scene.town.plane.call("GET", f"/api/v1/namespaces/{scene.town.namespace}/events")["items"]
    own = [each for each in found if (each["reportingComponent"], each["reason"]) == (REPORTER, "FailedCreate")]
    of_job = [each["message"] for each in own if each["involvedObject"]["name"].startswith(f"{name}-")]
    assert [words in said for said in of_job].count(True) == 1
    assert len(of_job) <= 2, "one when the refusal is seen, and one with the server's words"


def test_they_are_counted(scene: Scene) -> None:
    assert measure(scene.cycle(), None, 1).problems == {("a", "FailedCreate"): len(WORDS)}


def test_their_gpus_go_to_the_next_job_and_they_wait_with_the_servers_words(scene: Scene) -> None:
    town = scene.town
    town.jobs["then"] = ", gpus: 2, workers: 2"
    scene.clock.by_ms += 61_000
    scene.cycle()
    scene.clock.by_ms += START_TIMEOUT_MS
    town.until(lambda: town.phases().get("then") == "Running")
    waiting = {run.job.name: run for run in town.state().runs if run.job.name in WORDS}
    assert {run.failed_starts for run in waiting.values()} == {1}
    told = {name: reason_text(run.reason) for name, run in waiting.items() if run.reason is not None}
    assert is_told(told)
