"""Comments, labels and requests on GitHub and GitLab, against servers that check what their documentation says."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from codehosts import REPOSITORY, TOKEN, Call, CodeHost, GitHubHost, GitLabHost, Reply, served

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.forge import ForgeAddress, GitHub, GitLab, requests
from gpuctl.app.forge_ports import OpenRequest, ReviewRequest
from gpuctl.app.ports import ForgeFault

NOW_MS = 1_800_000_000_000
MARKER = "<!-- gpuctl plan prod -->"
OURS = frozenset({"gpuctl/pauses", "gpuctl/deletes", "gpuctl/refused"})
WANTED = ReviewRequest(source="more", target="main", title="More GPUs", body="Because.")
Forge = GitHub | GitLab


@pytest.fixture(params=["github", "gitlab"])
def host(request: pytest.FixtureRequest) -> Iterator[CodeHost]:
    with served(GitHubHost() if request.param == "github" else GitLabHost()) as running:
        yield running


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW_MS)


@pytest.fixture
def forge(host: CodeHost, clock: VirtualClock) -> Iterator[Forge]:
    address = ForgeAddress(url=host.url, repository=REPOSITORY, token=TOKEN)
    made: Forge = GitHub(address, clock) if isinstance(host, GitHubHost) else GitLab(address, clock)
    yield made
    made.close()


def _fault(act: Callable[[], object]) -> ForgeFault:
    with pytest.raises(ForgeFault) as caught:
        act()
    return caught.value


def _other(host: CodeHost, body: str) -> None:
    if isinstance(host, GitHubHost):
        host.comment(body, login="mallory")
    elif isinstance(host, GitLabHost):
        host.comment(body, author=6)


def test_the_comment_is_created_once_and_then_edited(host: CodeHost, forge: Forge) -> None:
    first = forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert forge.put_comment(7, MARKER, f"{MARKER}\ntwo") == first
    assert [each["body"] for each in host.comments] == [f"{MARKER}\ntwo"]
    assert first.startswith("https://")


def test_it_is_found_on_a_later_page_of_the_listing(host: CodeHost, forge: Forge) -> None:
    for n in range(120):
        _other(host, f"comment {n}")
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    forge.put_comment(7, MARKER, f"{MARKER}\ntwo")
    assert len(host.comments) == 121
    assert max(int(call.query.get("page", "1")) for call in host.calls) == 3


def test_a_listing_is_read_up_to_its_bound(host: CodeHost, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_PAGES", 2)
    for n in range(120):
        _other(host, f"comment {n}")
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert sum(call.path.endswith(("comments", "notes")) for call in host.calls if call.method == "GET") == 2


def test_the_comment_of_another_account_is_left_alone(host: CodeHost, forge: Forge) -> None:
    """Its author could edit what we wrote into it."""
    _other(host, f"{MARKER}\nnothing to see here")
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert [each["body"] for each in host.comments] == [f"{MARKER}\nnothing to see here", f"{MARKER}\none"]


def test_a_comment_of_no_account_is_left_alone(host: CodeHost, forge: Forge) -> None:
    for author in ("alice", ["alice"], None, 7):
        _other(host, f"{MARKER}\nodd")
        host.comments[-1] |= {"user": author, "author": author}
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert [each["body"] for each in host.comments] == [*[f"{MARKER}\nodd"] * 4, f"{MARKER}\none"]


def test_a_label_without_a_name_is_none_of_ours(host: CodeHost, forge: Forge) -> None:
    odd: Any = ["odd"]
    host.labels.append(odd)
    forge.set_labels(7, OURS, frozenset({"gpuctl/pauses"}))
    assert host.labels == [odd, "gpuctl/pauses"]


def test_a_marker_that_is_quoted_is_no_marker(host: CodeHost, forge: Forge) -> None:
    forge.put_comment(7, "<!-- other -->", f"<!-- other -->\n> {MARKER}")
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert len(host.comments) == 2


def test_on_github_a_persons_token_finds_its_own(clock: VirtualClock) -> None:
    with served(GitHubHost(account="alice")) as host:
        forge = GitHub(ForgeAddress(url=host.url, repository=REPOSITORY, token=TOKEN), clock)
        assert isinstance(host, GitHubHost)
        host.comment(f"{MARKER}\na bot's", login="renovate[bot]")
        forge.put_comment(7, MARKER, f"{MARKER}\none")
        forge.put_comment(7, MARKER, f"{MARKER}\ntwo")
        forge.close()
    assert [each["user"]["login"] for each in host.comments] == ["renovate[bot]", "alice"]


def test_labels_of_ours_are_set_and_others_stay(host: CodeHost, forge: Forge) -> None:
    host.labels += ["urgent", "gpuctl/deletes"]
    forge.set_labels(7, OURS, frozenset({"gpuctl/pauses", "not-ours"}))
    assert sorted(host.labels) == ["gpuctl/pauses", "urgent"]
    writes = len(host.writes)
    forge.set_labels(7, OURS, frozenset({"gpuctl/pauses"}))
    assert len(host.writes) == writes


def test_a_request_is_opened_once_for_a_branch(host: CodeHost, forge: Forge) -> None:
    opened = forge.open_request(WANTED)
    assert opened.is_new
    assert forge.open_request(WANTED) == OpenRequest(number=7, url=opened.url, is_new=False)
    assert len(host.requests) == 1
    assert host.requests[0]["title"] == "More GPUs"
    assert host.requests[0].get("body", host.requests[0].get("description")) == "Because."


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "GPU6203"), (403, "GPU6204"), (404, "GPU6205"), (410, "GPU6205"), (422, "GPU6206"), (418, "GPU6209")],
)
def test_a_refusal_is_told_with_its_reason_and_not_tried_again(
    host: CodeHost, forge: Forge, status: int, code: str
) -> None:
    host.faults.append((status, {}, {"message": f"no\x1b[2J, {TOKEN}"}))
    fault = _fault(lambda: forge.put_comment(7, MARKER, MARKER))
    assert (fault.code, len(host.calls)) == (code, 1)
    assert "no\\x1b[2J" in str(fault)
    assert TOKEN not in str(fault)


LIMITS: dict[str, tuple[Reply, int]] = {
    "retry-after": ((429, {"Retry-After": "17"}, {"message": "slow down"}), 17_000),
    "github's primary limit": (
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(NOW_MS // 1000 + 40)}, {}),
        40_000,
    ),
    "github's secondary limit": ((403, {}, {"message": "You have exceeded a secondary rate limit."}), 60_000),
    "gitlab's limit": ((429, {"RateLimit-Remaining": "0", "RateLimit-Reset": str(NOW_MS // 1000 + 9)}, {}), 9_000),
    "of no length": ((429, {}, b"Retry later\n"), 60_000),
    "a fault": ((502, {}, b"<html>"), 1_000),
    "an outage": ((503, {"Retry-After": "5"}, {}), 5_000),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_and_faults_are_waited_for(host: CodeHost, forge: Forge, clock: VirtualClock, limit: str) -> None:
    reply, wait_ms = LIMITS[limit]
    host.faults.append(reply)
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert clock.now_ms() == NOW_MS + wait_ms
    assert len(host.comments) == 1


def test_a_long_limit_is_told_at_once(host: CodeHost, forge: Forge, clock: VirtualClock) -> None:
    host.faults.append((403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(NOW_MS // 1000 + 3000)}, {}))
    fault = _fault(lambda: forge.put_comment(7, MARKER, MARKER))
    assert (fault.code, clock.now_ms()) == ("GPU6207", NOW_MS)
    assert "50m" in str(fault)


def test_attempts_are_bounded(host: CodeHost, forge: Forge, clock: VirtualClock) -> None:
    host.faults += [(500, {}, {})] * 50
    fault = _fault(lambda: forge.put_comment(7, MARKER, MARKER))
    assert (fault.code, len(host.calls)) == ("GPU6208", requests.ATTEMPTS)
    assert clock.now_ms() == NOW_MS + 15_000


def test_limits_without_end_are_bounded(host: CodeHost, forge: Forge) -> None:
    host.faults += [(429, {"Retry-After": "1"}, {})] * 50
    assert _fault(lambda: forge.put_comment(7, MARKER, MARKER)).code == "GPU6207"
    assert len(host.calls) == requests.ATTEMPTS


def test_what_was_created_without_an_answer_is_not_created_again(host: CodeHost, forge: Forge) -> None:
    """The server did it and then failed: a second comment would be one too many."""

    def done_but_failed(call: Call) -> Reply | None:
        if call.method != "POST":
            host.faults.append(done_but_failed)
            return host.serve(call)
        host.serve(call)
        return 504, {}, {}

    host.faults.append(done_but_failed)
    forge.put_comment(7, MARKER, f"{MARKER}\none")
    assert len(host.comments) == 1
    host.faults.append(done_but_failed)
    assert forge.open_request(WANTED).number == 7
    assert len(host.requests) == 1


def test_a_redirect_on_the_same_host_is_followed(host: CodeHost, forge: Forge) -> None:
    host.faults.append(lambda call: (307, {"Location": f"{call.path}?moved=1&per_page=50"}, {}))
    forge.put_comment(7, MARKER, MARKER)
    assert host.calls[1].query["moved"] == "1"


def test_the_token_is_not_sent_to_another_host(host: CodeHost, forge: Forge) -> None:
    with served(GitHubHost()) as thief:
        for there in (thief.url, "https://evil.example.com/", "//evil.example.com/x", "http://[::1", "file:///etc"):
            host.faults.append((302, {"Location": there}, {}))
            assert _fault(lambda: forge.put_comment(7, MARKER, MARKER)).code == "GPU6209"
    assert thief.calls == []


def test_a_next_page_elsewhere_is_not_asked_for(host: CodeHost, forge: Forge) -> None:
    with served(GitHubHost()) as thief:
        host.faults.append((200, {"Link": f'<{thief.url}/x>; rel="next"', "X-Next-Page": "2"}, []))
        forge.put_comment(7, MARKER, MARKER)
    assert thief.calls == []


def test_redirects_without_end_are_bounded(host: CodeHost, forge: Forge) -> None:
    host.faults += [lambda call: (301, {"Location": call.path}, {})] * 50
    assert _fault(lambda: forge.set_labels(7, OURS, OURS)).code == "GPU6209"
    assert len(host.calls) < 10


ANSWERS = (b"<html>log in</html>", b"{}", b"[1, null]", b'"text"', b"[" * 100_000, b"", b"\xff", b"1e999")


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer[:12]))
def test_a_strange_answer_is_told_or_passed_over(host: CodeHost, forge: Forge, answer: bytes) -> None:
    for act in (
        lambda: forge.put_comment(7, MARKER, MARKER),
        lambda: forge.set_labels(7, OURS, OURS),
        lambda: forge.open_request(WANTED),
    ):
        host.faults += [lambda _call: (200, {}, answer)] * 3
        try:
            act()
        except ForgeFault as fault:
            assert fault.code == "GPU6209"  # noqa: PT017 - either is right, a traceback is not
        host.faults.clear()


def test_a_packed_answer_is_not_unpacked(host: CodeHost, forge: Forge) -> None:
    """It was not asked for, and may be a thousand times as large unpacked, in each of several packings."""
    packed = gzip.compress(gzip.compress(b"[" + b" " * (32 << 20) + b"]"))
    headers = {"Content-Encoding": "gzip, gzip", "Content-Type": "application/json"}
    host.faults.append((200, headers, packed))
    fault = _fault(lambda: forge.put_comment(7, MARKER, MARKER))
    assert (fault.code, "without JSON" in str(fault)) == ("GPU6209", True)


def test_a_huge_answer_is_not_read_to_its_end(host: CodeHost, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_ANSWER_BYTES", 1 << 20)
    host.faults.append((200, {}, b"[" + b" " * (2 << 20) + b"]"))
    assert _fault(lambda: forge.put_comment(7, MARKER, MARKER)).code == "GPU6209"


@pytest.mark.parametrize(
    "url",
    [
        "http://git.example.com/api/v4",
        "https://user@git.example.com",
        "ftp://git.example.com",
        "git.example.com",
        "https://",
        "https://git.example.com/?x=1",
        "https://git.example.com:http",
        "https://git.example.com/\r\nhost: evil",
        "http://127.0.0.1.evil.example.com",
        "",
    ],
)
def test_no_token_is_sent_to_such_an_address(url: str) -> None:
    assert _fault(lambda: ForgeAddress(url=url, repository=REPOSITORY, token=TOKEN)).code == "GPU6202"


@pytest.mark.parametrize("token", ["", "two words", "line\nx-evil: 1", "é"])
def test_a_token_is_one_word(token: str) -> None:
    url = "https://api.github.com"
    assert _fault(lambda: ForgeAddress(url=url, repository=REPOSITORY, token=token)).code == "GPU6201"


def test_the_token_is_in_no_text_form_of_the_address() -> None:
    address = ForgeAddress(url="https://api.github.com/", repository=REPOSITORY, token=TOKEN)
    assert TOKEN not in repr(address)
    assert (address.base, address.host) == ("https://api.github.com", "api.github.com")


def test_names_from_outside_stay_in_their_part_of_the_path(host: CodeHost, clock: VirtualClock) -> None:
    address = ForgeAddress(url=host.url, repository="acme/../../user?x=", token=TOKEN)
    forge: Forge = GitHub(address, clock) if isinstance(host, GitHubHost) else GitLab(address, clock)
    assert _fault(lambda: forge.set_labels(7, OURS, OURS)).code == "GPU6205"
    assert "%2F" in host.calls[0].path
    forge.close()


def test_a_server_that_is_not_there_is_told(clock: VirtualClock) -> None:
    with served(GitHubHost()) as host:
        url = host.url
    forge = GitHub(ForgeAddress(url=url, repository=REPOSITORY, token=TOKEN), clock)
    fault = _fault(lambda: forge.put_comment(7, MARKER, MARKER))
    assert fault.code == "GPU6208"
    assert "refused" in str(fault)
    forge.close()
