"""Which code host, repository, request and token a CI job's environment names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from codehosts import TOKEN

from gpuctl.adapters.forge import ForgeOptions, address_of, number_of
from gpuctl.app.ports import ForgeFault

GITHUB = {
    "GITHUB_API_URL": "https://git.example.com/api/v3",
    "GITHUB_REPOSITORY": "acme/gpus",
    "GITHUB_TOKEN": TOKEN,
}
GITLAB = {
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
    "CI_PROJECT_ID": "42",
    "CI_MERGE_REQUEST_IID": "7",
    "GITLAB_TOKEN": TOKEN,
    "CI_JOB_TOKEN": "can-not-comment",
    "CI_SERVER_TLS_CA_FILE": "/ca.pem",
}
ON_GITHUB, ON_GITLAB = ForgeOptions(host="github"), ForgeOptions(host="gitlab")


def _code(fault: pytest.ExceptionInfo[ForgeFault]) -> str:
    assert TOKEN not in str(fault.value)
    return fault.value.code


def test_github_actions_names_all() -> None:
    address = address_of(ON_GITHUB, GITHUB)
    assert (address.url, address.repository, address.token) == (GITHUB["GITHUB_API_URL"], "acme/gpus", TOKEN)


def test_gitlab_ci_names_all() -> None:
    address = address_of(ON_GITLAB, GITLAB)
    assert (address.url, address.repository, address.token) == (GITLAB["CI_API_V4_URL"], "42", TOKEN)
    assert address.ca_file == "/ca.pem"
    assert number_of(ON_GITLAB, GITLAB) == 7


def test_options_come_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    given = ForgeOptions(
        host="github", api_url="https://x.example.com", repository="a/b", number=3, token_file=tmp_path / "token"
    )
    address = address_of(given, GITHUB)
    assert (address.url, address.repository, address.token) == ("https://x.example.com", "a/b", "from-a-file")
    assert number_of(given, {}) == 3


def test_without_an_address_it_is_the_public_one() -> None:
    assert address_of(ON_GITHUB, {**GITHUB, "GITHUB_API_URL": ""}).url == "https://api.github.com"
    assert address_of(ON_GITLAB, {**GITLAB, "CI_API_V4_URL": ""}).url == "https://gitlab.com/api/v4"


def test_the_number_is_that_of_the_event(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    assert number_of(ON_GITHUB, {"GITHUB_EVENT_PATH": str(event)}) == 7


@pytest.mark.parametrize(
    "content", ["", "[", "{}", "[]", '{"pull_request": null}', '{"pull_request": {"number": "7/../8"}}', "[" * 100_000]
)
def test_an_event_without_a_number_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "event.json").write_text(content)
    with pytest.raises(ForgeFault) as fault:
        number_of(ON_GITHUB, {"GITHUB_EVENT_PATH": str(tmp_path / "event.json")})
    assert _code(fault) == "GPU6202"


@pytest.mark.parametrize("options", [ON_GITHUB, ON_GITLAB])
@pytest.mark.parametrize("environment", [{}, {"GITHUB_EVENT_PATH": "/no/such"}, {"CI_MERGE_REQUEST_IID": "7/../8"}])
def test_outside_of_a_request_the_number_is_not_known(options: ForgeOptions, environment: dict[str, str]) -> None:
    with pytest.raises(ForgeFault) as fault:
        number_of(options, environment)
    assert _code(fault) == "GPU6202"


@pytest.mark.parametrize(
    ("options", "environment", "code"),
    [
        (ON_GITHUB, {**GITHUB, "GITHUB_TOKEN": ""}, "GPU6201"),
        (ON_GITLAB, {**GITLAB, "GITLAB_TOKEN": ""}, "GPU6201"),
        (ON_GITHUB, {**GITHUB, "GITHUB_REPOSITORY": ""}, "GPU6202"),
        (ON_GITHUB, {**GITHUB, "GITHUB_REPOSITORY": "a/b/c"}, "GPU6202"),
        (ON_GITLAB, {**GITLAB, "CI_PROJECT_ID": ""}, "GPU6202"),
        (ON_GITHUB, {**GITHUB, "GITHUB_API_URL": "http://git.example.com"}, "GPU6202"),
        (ForgeOptions(host="github", token_file=Path("/no/such")), GITHUB, "GPU6201"),
        (ForgeOptions(host="github", token_file=Path("/dev/zero")), GITHUB, "GPU6201"),
    ],
)
def test_what_is_missing_is_named(options: ForgeOptions, environment: dict[str, str], code: str) -> None:
    with pytest.raises(ForgeFault) as fault:
        address_of(options, environment)
    assert _code(fault) == code
