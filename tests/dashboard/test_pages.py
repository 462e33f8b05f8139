"""What the dashboard's pages say of a cluster, and to whom."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from html import unescape
from ipaddress import ip_network
from pathlib import Path
from time import monotonic, sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Site, serving

from gpuctl.adapters.dashboard import server
from gpuctl.adapters.dashboard.guarding import ANY_HOST, Access
from gpuctl.adapters.dashboard.listing import ROWS, Query, jobs_page
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import format_gpus
from gpuctl.model.utilisation import IDLE_AFTER_MS, ProjectUse, RunUse
from gpuctl.views.clusters import ClusterView, with_use

PATIENCE_S = 180
PATHS = ("/", "/projects", "/jobs", "/jobs/team-a/a-1-g", "/nodes", "/queue", "/analytics")
REPORT = {
    "4.8": ({"team-a": 4, "team-b": 4, "team-c": 4, "team-d": 4}, 13, set()),
    "4.9": ({"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}, 13, {"b-4-gg", "c-4-gg"}),
    "4.10": ({"team-a": 8, "team-b": 4, "team-c": 4, "team-d": 0}, 14, {"b-5-gg", "c-6-gg"}),
}
"""GPUs by project, running jobs, and pending ones, at the end of each section of TR-4858."""


def tiles(html: str) -> dict[str, str]:
    return dict(re.findall(r"<div><dt>([^<]+)</dt><dd>([^<]+)</dd></div>", html))


def rows(html: str, caption: str) -> list[list[str]]:
    """The cells of the table with a caption, without markup."""
    table = re.search(rf"<caption><span>{re.escape(caption)}.*?</table>", html, re.DOTALL)
    assert table is not None
    lines = re.findall(r"<tr>(.*?)</tr>", table[0], re.DOTALL)
    return [[text(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL)] for line in lines]


def text(markup: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", markup)).strip()


@pytest.mark.parametrize("label", REPORT)
def test_the_overview_shows_each_state_of_the_report(label: str, story: Mapping[str, ClusterView]) -> None:
    held, running, pending = REPORT[label]
    with serving(story[label]) as site:
        _, html = site.get("/")
    shown = {
        "Nodes": "2", "Total GPUs": "16", "Allocated GPUs": "16", "Idle allocated GPUs": "-",
        "Running jobs": str(running), "Pending jobs": str(len(pending)),
    }  # fmt: skip
    assert tiles(html) == shown
    bars = dict(re.findall(r'aria-label="(team-.): ([\d.]+) GPUs allocated', html))
    assert bars == {project: str(gpus) for project, gpus in held.items()}
    header, *lines = rows(html, "Running Jobs")
    assert header[:7] == ["Job", "Project", "Type", "Node", "GPUs", "Run Time", "Progress"]
    assert header[7:] == ["Utilisation", "Status"]
    assert len(lines) == running
    assert all(re.fullmatch(r"\d+\.\d\d", line[4]) and re.fullmatch(r"\d\d:\d\d:\d\d", line[5]) for line in lines)
    header, *lines = rows(html, "Pending Jobs")
    assert header[:5] == ["Job", "Project", "Type", "Requested GPUs", "Wait Time"]
    assert {line[0] for line in lines if len(line) > 1} == pending
    assert all(line[3] == "2.00" for line in lines if len(line) > 1)  # b-5-gg has never run
    assert [line[:4] for line in rows(html, "Nodes")[1:]] == [
        ["dgx1-1", "Ready", "8", "8"], ["dgx1-2", "Ready", "8", "8"],
    ]  # fmt: skip


def test_a_paused_job_is_shown_with_the_job_it_was_paused_for(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.9"]) as site:
        _, html = site.get("/")
        assert re.search(r"c-4-gg</a> \(team-c\) was paused for <a[^>]*>d-2-gg</a>|"
                         r"b-4-gg</a> \(team-b\) was paused for <a[^>]*>d-2-gg</a>", html)  # fmt: skip
        _, html = site.get("/jobs/team-c/c-4-gg")
        assert "<dt>Last paused for</dt>" in html


def test_what_gpus_do_is_shown_where_it_is_measured(story: Mapping[str, ClusterView]) -> None:
    """The report has 23 % with jobs of one team alone."""
    view, gib = story["4.8"], 1 << 30
    with serving(view) as site:
        _, html = site.get("/")
        assert "GPU utilisation" not in html
    rest = RunUse(
        held_milli=1000, busy_milli=0, used_bytes=gib, total_bytes=32 * gib, quiet_since_ms=0, seen_ms=IDLE_AFTER_MS
    )
    work = RunUse(held_milli=2000, busy_milli=1840, used_bytes=20 * gib, total_bytes=64 * gib, seen_ms=IDLE_AFTER_MS)
    uses = {"a-1-g": rest, "a-2-gg": work}
    jobs = tuple(
        replace(job, use=use, run=replace(job.run, idle_since_ms=use.idle_since_ms)) if use is not None else job
        for job, use in ((job, uses.get(job.id.name)) for job in view.jobs)
    )
    jobs = tuple(replace(job, progress_ppm=230_000) if job.id.name == "a-1-g" else job for job in jobs)
    known = replace(view, jobs=jobs, idle_milli=1000, _by_id={job.id: job for job in jobs})
    known = with_use(known, {ProjectName("team-a"): ProjectUse(held_milli=3000, busy_milli=3680, idle_milli=1000)})
    with serving(known) as site:
        _, html = site.get("/")
        _, page = site.get("/jobs/team-a/a-1-g")
    assert tiles(html)["Idle allocated GPUs"] == "1"
    with serving(replace(known, idle_milli=0)) as site:
        assert tiles(site.get("/")[1])["Idle allocated GPUs"] == "0"
    assert 'aria-label="23 % of all GPUs work for jobs"' in html
    shown = {line[0]: line[7] for line in rows(html, "Running Jobs")[1:]}
    assert (shown["a-1-g"], shown["a-2-gg"], shown["b-4-gg"]) == ("0 %", "92 %", "-")
    of_nodes = {node for job in jobs if job.use is not None for node in job.nodes}
    assert of_nodes == {"dgx1-1"}
    assert {line[0]: line[4] for line in rows(html, "Nodes")[1:]} == {"dgx1-1": "23 %", "dgx1-2": "-"}
    facts = tiles(page)
    assert facts["Progress"].startswith("23%, about ")
    assert facts["Utilisation"] == "0 %, memory 1/32Gi"
    assert "Idle for" in facts


def test_a_bar_has_a_mark_at_the_fair_share_where_it_is_published(story: Mapping[str, ClusterView]) -> None:
    view = story["4.8"]
    shares = {"team-a": 4_000, "team-b": 2_500}
    known = [
        replace(each, share_milli={WHOLE_CLUSTER: shares[each.name]}) if each.name in shares else each
        for each in view.projects
    ]
    with serving(replace(view, projects=tuple(known))) as site:
        _, html = site.get("/")
    said = dict(
        re.findall(r'aria-label="(team-.): [\d.]+ GPUs allocated, quota [\d.]+(?:, fair share ([\d.]+))?"', html)
    )
    assert said == {"team-a": "4", "team-b": "2.5", "team-c": "", "team-d": ""}
    assert html.count('<path class="mark"') == 2
    assert "share 2.5</span>" in html


def test_pages_follow_the_cluster(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.8"]) as site:
        before = site.feed.seen().version
        site.view = story["4.9"]
        until = monotonic() + PATIENCE_S
        while site.feed.seen().version == before and monotonic() < until:
            sleep(0.02)
        assert tiles(site.get("/")[1])["Pending jobs"] == "2"
        found = json.loads(site.get("/api/allocation")[1])
        held = {line["name"]: line["values"] for line in found["lines"]}
        assert (held["team-b"][0], held["team-b"][-1]) == (4, 2)
        csv = site.get("/api/allocation.csv")[1].splitlines()
        assert csv[0] == "time,project,gpu_milli"
        assert csv[-1].endswith(",team-d,8000")


def test_a_cluster_that_cannot_be_read_is_said_and_what_was_read_stays(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.8"]) as site:
        site.fault = ClusterUnavailable("GPU7010", "no answer")
        wait_for(site, "GPU7010: no answer")
        assert tiles(site.get("/")[1])["Running jobs"] == "13"
        site.fault = None
        wait_for(site, "GPU7010: no answer", gone=True)


def wait_for(site: Site, said: str, *, gone: bool = False) -> None:
    until = monotonic() + PATIENCE_S
    while (said in site.get("/")[1]) is gone:
        assert monotonic() < until
        sleep(0.02)


def test_nothing_can_be_changed_and_no_script_but_ours_runs(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.8"]) as site:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert site.get("/jobs", method=method)[0] == 405
        for path in PATHS:
            status, html = site.get(path)
            assert status == 200
            assert not re.search(r"<script(?! src=\"/static/)|<style| style=| on\w+=|javascript:", html)
            assert not re.search(r"(?:src|href)=\"(?!/|#|\?)", html)
        head = plainly(site, "HEAD /jobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert "default-src 'none'; script-src 'self'" in head


def test_another_name_that_leads_here_is_refused(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.8"]) as site:
        assert site.get("/", {"Host": "attacker.example"})[0] == 400
        assert site.get("/", {"Host": f"localhost:{site.dashboard.port}"})[0] == 200


def test_behind_a_proxy_each_request_needs_its_user(story: Mapping[str, ClusterView]) -> None:
    access = Access(hosts=("gpus.example.com", "127.0.0.1"), user_header="X-Forwarded-User")
    with serving(story["4.8"], access) as site:
        assert [site.get(path)[0] for path in (*PATHS, "/events", "/api/allocation")] == [401] * (len(PATHS) + 2)
        assert site.get("/", {"X-Forwarded-User": " "})[0] == 401
        assert site.get("/", {"X-Forwarded-User": "ana", "Host": "gpus.example.com"})[0] == 200
        assert site.get("/healthz")[0] == 200


def test_only_a_proxy_that_is_known_may_name_a_user(story: Mapping[str, ClusterView], tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = Access(hosts=ANY_HOST, user_header="X-Forwarded-User", secret_file=file)
    said = {"X-Forwarded-User": "ana", "X-Proxy-Secret": "0123456789abcdef"}
    with serving(story["4.8"], secret) as site:
        assert site.get("/", said)[0] == 403  # there is no secret yet
        file.write_text("short\n")
        assert site.get("/", {**said, "X-Proxy-Secret": "short"})[0] == 403
        file.write_text(said["X-Proxy-Secret"] + "\n")
        assert [site.get(path, said)[0] for path in PATHS] == [200] * len(PATHS)
        assert site.get("/", {**said, "Host": "gpus.example.com"})[0] == 200
        for wrong in ("", "0123456789abcdeX", "\xe9" * 16):
            assert site.get("/", {**said, "X-Proxy-Secret": wrong})[0] == 403
        assert site.get("/", {"X-Forwarded-User": "ana"})[0] == 403
        assert site.get("/", {"X-Proxy-Secret": said["X-Proxy-Secret"]})[0] == 401
        twice = f"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-proxy-secret: {said['X-Proxy-Secret']}\r\n"
        for more, answer in (("x-forwarded-user: ana\r\n", "200"), ("x-forwarded-user: ana\r\n" * 2, "401")):
            assert plainly(site, f"{twice}{more}\r\n").split()[1] == answer
    for network, status in (("10.0.0.0/8", 403), ("127.0.0.0/8", 200)):
        access = Access(user_header="X-Forwarded-User", proxies=(ip_network(network),))
        with serving(story["4.8"], access) as site:
            assert site.get("/", {"X-Forwarded-User": "ana", "X-Forwarded-For": "10.0.0.7"})[0] == status
            assert site.get("/healthz")[0] == 200


def plainly(site: Site, request: str) -> str:
    with socket.create_connection(("127.0.0.1", site.dashboard.port)) as plain:
        plain.sendall(request.encode())
        return plain.makefile().read()


def test_what_the_cluster_says_cannot_become_markup(story: Mapping[str, ClusterView]) -> None:
    view = story["4.8"]
    evil = "<img src=x onerror=alert(1)>\x1b[31m\u202e{{ 7 * 7 }}"
    pods = tuple(replace(pod, name=evil, phase=evil, node=evil) for pod in view.jobs[0].pods)
    job = replace(view.jobs[0], image=evil, type=evil, urls=(f"javascript:{evil}",), pods=pods)
    nodes = tuple(replace(node, name=NodeName(evil), status=evil) for node in view.nodes)
    projects = tuple(replace(project, namespace=evil, department=evil) for project in view.projects)
    shown = replace(view, jobs=(job, *view.jobs[1:]), nodes=nodes, projects=projects, unread=(evil,))
    shown = replace(shown, _by_id={job.id: job})
    with serving(shown) as site:
        for path in ("/", "/projects", "/jobs?q=%3Cimg%20src%3E", "/nodes", f"/jobs/{job.id.project}/{job.id.name}"):
            status, html = site.get(path)
            assert status == 200
            assert "<img" not in html
            assert not any(mark in html for mark in ("\x1b", "\u202e", ">49<", "} 49"))
            assert "&lt;img src=x onerror" in html or "&lt;img src&gt;" in html


def test_what_could_not_be_read_is_named_on_each_page(story: Mapping[str, ClusterView]) -> None:
    told = "Not all could be read. What is missing here, or as it was before: JobSet can"
    for unread, is_told in (((), False), (("JobSet can't be read now",), True)):
        with serving(replace(story["4.8"], unread=unread)) as site:
            assert {told in site.get(path)[1] for path in ("/", "/projects", "/jobs", "/nodes", "/queue")} == {is_told}


def test_what_is_not_there_is_a_page_and_no_traceback(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.8"]) as site:
        for path in ("/nothing", "/jobs/team-a/x", "/jobs/UPPER/%00", "/static/../feed.py", "/static/%2e%2e/server.py"):
            status, html = site.get(path)
            assert status == 404
            assert "Traceback" not in html
        assert site.get("/jobs?page=99999999999999999999&order=nothing&state=%00")[0] == 200


@given(st.dictionaries(st.sampled_from(["q", "project", "state", "order", "page", "x"]), st.text(max_size=200)))
def test_every_address_gives_some_page(asked: dict[str, str]) -> None:
    page = jobs_page((), Query.of(asked))
    assert (page.total, page.pages, page.query.number) == (0, 1, 1)
    assert "\n" not in page.query.address(page=2)


def test_ten_thousand_jobs_are_shown_a_page_at_a_time(story: Mapping[str, ClusterView]) -> None:
    view = story["4.8"]
    like = view.jobs[1]
    many = tuple(replace(like, id=JobId(like.id.project, f"job-{number:05}")) for number in range(10_000))
    with serving(replace(view, jobs=many)) as site:
        status, html = site.get("/jobs?order=name&page=3")
        assert status == 200
        lines = rows(html, "Jobs")[1:]
        assert [lines[0][0], lines[-1][0], len(lines)] == ["job-00200", "job-00299", ROWS]
        assert "10000 in all, page 3 of 100" in html
        assert len(site.get("/")[1]) < 100_000
        _, html = site.get("/jobs?q=job-0999")
        assert len(rows(html, "Jobs")) == 11
        assert format_gpus(like.gpu_milli) in {line[5].rstrip("0").rstrip(".") for line in rows(html, "Jobs")[1:]}


def test_clients_that_never_read_hold_up_no_other(story: Mapping[str, ClusterView]) -> None:
    with serving(story["4.8"]) as site:
        asked = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n"
        idle = [socket.create_connection(("127.0.0.1", site.dashboard.port)) for _ in range(200)]
        try:
            for client in idle[:150]:
                client.sendall(asked)
            for client in idle[150:]:
                client.sendall(asked[:20])
            for number in range(20):
                site.view = story[("4.8", "4.9")[number % 2]]
                sleep(0.03)
            assert all(site.get(path)[0] == 200 for path in PATHS)
            reads, until = site.reads, monotonic() + PATIENCE_S
            while site.reads == reads:
                assert monotonic() < until
                sleep(0.02)
        finally:
            for client in idle:
                client.close()


@pytest.mark.parametrize("begins", [b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\nGET / HT"], ids=["silent", "half"])
def test_a_connection_on_which_nothing_is_asked_for_ends(
    story: Mapping[str, ClusterView], monkeypatch: pytest.MonkeyPatch, begins: bytes
) -> None:
    """A thousand of them would keep all others out."""
    monkeypatch.setattr(server, "_ASKING_S", 0.3)
    with serving(story["4.8"]) as site:
        place = ("127.0.0.1", site.dashboard.port)
        with socket.create_connection(place) as client, socket.create_connection(place) as listens:
            listens.settimeout(PATIENCE_S)
            listens.sendall(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            client.settimeout(0.05)
            client.sendall(begins)
            until = monotonic() + PATIENCE_S
            with suppress(ConnectionError):  # this is the end, too
                while monotonic() < until:
                    try:
                        if not client.recv(1 << 16):
                            break
                    except TimeoutError:
                        client.sendall(b"T" if begins else b"")  # it drips
            assert monotonic() < until
            site.view = story["4.9"]
            told = b""
            while b"event: changed" not in told:  # one that is answered goes on
                told += (more := listens.recv(1 << 16))
                assert more


def test_the_cluster_is_left_alone_when_no_page_is_asked_for(story: Mapping[str, ClusterView]) -> None:
    site = Site(story["4.8"], looked_at_ms=100)

    def is_left_alone() -> bool:
        reads = site.reads
        sleep(0.5)  # as long as five pages are looked at, in which a busy machine reads less often
        return site.reads == reads

    try:
        until = monotonic() + PATIENCE_S
        while not is_left_alone():
            assert monotonic() < until
        reads = site.reads
        site.feed.seen()
        while site.reads == reads:
            assert monotonic() < until
            sleep(0.02)
    finally:
        site.feed.close()
        site.dashboard.close()
