"""GPU6201-6239: comments, labels and requests on GitHub and GitLab."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6201",
        title="no token for the code host",
        message="there is no token for {host}: {why}",
        why="Comments, labels and requests are written in the name of an account. Its token is read from the "
        "environment or from a file, never from the command line, where other processes can read it.",
        fix="Set GITHUB_TOKEN, or GITLAB_TOKEN for GitLab, or name a file that holds the token: --token-file FILE.",
    ),
    CodeEntry(
        code="GPU6202",
        title="the place of the comment is not known",
        message="{what} is not known, or not usable: {why}",
        why="A CI job has the address of the API, the repository and the number of the request in its environment. "
        "Tokens are sent over https only, except to this machine.",
        fix="Run it in a job of a pull or merge request, or name what is missing: --api-url, --repository, --number.",
    ),
    CodeEntry(
        code="GPU6203",
        title="the code host does not accept the token",
        message="{what}: {host} does not accept the token (401): {why}",
        why="The token has expired, was revoked, is another host's, or was copied in part.",
        fix="Make a new token, and store it as the secret that the job reads.",
    ),
    CodeEntry(
        code="GPU6204",
        title="the token may not do this",
        message="{what}: the token may not do this on {host} (403): {why}",
        why="The token lacks a permission. A job for a pull request of a fork gets a token that can only read, "
        "whatever the workflow asks for: what the fork's branch contains would otherwise run with it.",
        fix="GitHub: `permissions: {pull-requests: write}`. GitLab: a project token with the scope `api` and the role "
        "Developer. For forks, read the plan in the job's summary, or comment in a second workflow (`workflow_run`) "
        "that runs none of the fork's code.",
    ),
    CodeEntry(
        code="GPU6205",
        title="the code host has no such thing",
        message="{what}: {host} has it not, or the token may not see it (404): {why}",
        why="A repository, request or branch that a token may not see is answered as if it did not exist.",
        fix="Check --repository and --number, and that the token belongs to this repository.",
    ),
    CodeEntry(
        code="GPU6206",
        title="the code host refuses the content",
        message="{what}: {host} refuses it ({status}): {why}",
        why="A branch does not exist there, has no commit that the target lacks, or a text is too long.",
        fix="Push the branch first; see what the code host says is wrong.",
    ),
    CodeEntry(
        code="GPU6207",
        title="the code host's rate limit is used up",
        message="{what}: {host} accepts no request for another {wait}",
        why="All jobs that share an account share its rate limit.",
        fix="Run it again later, or give this job a token of its own.",
    ),
    CodeEntry(
        code="GPU6208",
        title="the code host does not answer",
        message="{what}: {host} did not answer after {attempts} attempts: {why}",
        why="The code host, or what is on the way to it, is down or slow.",
        fix="Check the address with --api-url and the proxy (HTTPS_PROXY), then run it again: it edits the same "
        "comment.",
    ),
    CodeEntry(
        code="GPU6209",
        title="the answer is not a code host's",
        message="{what}: the answer of {host} is not that of its API: {why}",
        why="A proxy or a login page answered, the address is not that of the API, or the answer is far too large. "
        "A redirect to another host is not followed: the token would be sent there.",
        fix="Check the address: https://api.github.com, https://HOST/api/v3 or https://HOST/api/v4.",
    ),
    CodeEntry(
        code="GPU6210",
        title="the file holds no plan that can be posted",
        message="{file} holds no plan that can be posted: {why}",
        why="`gpuctl comment --plan FILE` posts a plan that another job has made. Such a job may run what a stranger's "
        "branch contains, so the file is read up to a bound and held against the published schema.",
        fix="Make it with `gpuctl plan -o json` of the same version of gpuctl.",
    ),
    CodeEntry(
        code="GPU6211",
        title="the plan is of another commit",
        message="the plan is of {commit}, which is not {wanted}",
        why="A plan that is read from a file may be of an earlier commit, or of another request. Under this request it "
        "would say something untrue. With `--head`, it is not of the commit of the job that made it.",
        fix="Plan the commit that the request has now, by its id: gpuctl plan DIR --base BASE --head COMMIT -o json. A "
        "plan of the working tree is of no commit.",
    ),
)
