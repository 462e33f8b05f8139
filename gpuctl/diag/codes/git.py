"""GPU8xxx: Git."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

_KEEPS = "The last good commit stays in force, from the local clone. The repository is asked again with growing "
_KEEPS += "intervals, up to five minutes."

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU8001",
        title="the repository can't be reached",
        message="{url} can't be reached: {why}",
        why="The network, the host or the folder of the repository does not answer, or answered too slowly. " + _KEEPS,
        fix="Check the address and the network. `git ls-remote URL` from the same place shows the same failure.",
    ),
    CodeEntry(
        code="GPU8002",
        title="the branch is not in the repository",
        message="{url} has no branch {branch}",
        why="The branch never existed, or was deleted or renamed. " + _KEEPS,
        fix="Push the branch, or start gpuctl with the right `--branch`.",
    ),
    CodeEntry(
        code="GPU8003",
        title="the path is not in the repository",
        message="there is no folder {path} at commit {revision}",
        why="The folder of the cluster was moved or deleted, or the path is mistyped. gpuctl deletes nothing because "
        "of that: running jobs keep running.",
        fix="Put the folder back, or start gpuctl with the right `--path`.",
    ),
    CodeEntry(
        code="GPU8004",
        title="not a Git repository",
        message="{url} is not a Git repository",
        why="The address answers, but not as a repository.",
        fix="Check the address; for a folder on this machine it is the one that holds `.git`, or a bare clone. "
        "A folder that a link leads to, out of its repository, is in none.",
    ),
    CodeEntry(
        code="GPU8005",
        title="the repository refuses access",
        message="{url} refuses access: {why}",
        why="The key, token or password is missing, wrong or not allowed to read. gpuctl never asks for one. " + _KEEPS,
        fix="Give the process an SSH key, or a credential helper in its Git configuration, that may read the "
        "repository.",
    ),
    CodeEntry(
        code="GPU8006",
        title="unknown commit",
        message="commit {revision} is not in {url}",
        why="The commit was removed by a forced push, was never pushed, or the name is mistyped.",
        fix="Name a commit, tag or branch of the repository. In CI, fetch the branch first: `git fetch origin BRANCH`.",
    ),
    CodeEntry(
        code="GPU8007",
        title="the branch was rewritten",
        message="the branch was rewritten: {new} does not contain {old}, which was applied before",
        why="The branch was pushed with force. gpuctl follows the branch, so the new commit is applied.",
        fix="If that was a mistake, push the old commit again. Protect the branch against forced pushes.",
    ),
    CodeEntry(
        code="GPU8008",
        title="the repository address is not allowed",
        message="{url} is not an address gpuctl reads from",
        why="Repositories are read over https, ssh and file, or from a folder. Other transports can run commands, or "
        "can be tampered with.",
        fix="Use a folder, file:///PATH, https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH.",
    ),
    CodeEntry(
        code="GPU8009",
        title="a project stays at its last good commit",
        message="{owner} stays as of commit {revision}: its files at {head} can't be used",
        why="The newest commit has errors in these files. Their last commit without errors stays in force; everything "
        "else follows the newest commit.",
        fix="Correct the errors listed with it.",
    ),
    CodeEntry(
        code="GPU8010",
        title="a project can't be read at any good commit",
        message="{owner} is left unchanged: its files at {head} can't be used, and no good commit of it is known",
        why="The newest commit has errors in these files, and there is no earlier good commit in the repository. "
        "Running jobs of the project are neither changed nor deleted.",
        fix="Correct the errors listed with it.",
    ),
    CodeEntry(
        code="GPU8011",
        title="git is not installed",
        message="git can't be run: {why}",
        why="gpuctl reads repositories through the `git` command.",
        fix="Install git 2.30 or newer and have it on PATH.",
    ),
    CodeEntry(
        code="GPU8012",
        title="nothing to enforce yet",
        message="no good commit is known, so nothing is changed: {why}",
        why="The repository can't be read, or its declarations can't be compiled, and no earlier commit is recorded in "
        "the cluster.",
        fix="Correct the errors listed with it.",
    ),
    CodeEntry(
        code="GPU8013",
        title="the local clone is damaged",
        message="{folder} is damaged: objects of the commit are missing",
        why="The disk failed, or git was killed while writing. gpuctl deletes its clone and fetches it again by "
        "itself.",
        fix="Nothing to do for gpuctl's own clone. In your own repository, `git fsck` lists what is missing. A partial "
        "clone lacks objects that gpuctl does not fetch: `git fetch --refetch --no-filter` completes it.",
    ),
    CodeEntry(
        code="GPU8014",
        title="the cluster's folder is too large",
        message="{path} ({revision}) has more than {bound}, the most that is read of one cluster",
        why="gpuctl reads a bounded amount of a commit, so that no commit can exhaust the memory or the time of the "
        "process: 200,000 files and folders of any kind, 50,000 declaration files, and 32 MiB in those, below the "
        "cluster's folder and in its policies. The projects with the most in their folders are left out first "
        "(GPU1024); this is told where the rest is too much as well. The reconciler continues with the last good "
        "commit.",
        fix="Move files that are not declarations out of the cluster's folder, or divide the declarations among "
        "several clusters.",
    ),
    CodeEntry(
        code="GPU8015",
        title="git exceeded its limits",
        message="git was stopped: {why}",
        why="Each git command may use one minute, 384 MiB of memory and 1.5 GiB for one file, which also bounds a "
        "fetch. A repository with a very long history or very large files exceeds that. " + _KEEPS,
        fix="Keep the declarations in a repository of their own, and have its host refuse large files. A fetch that "
        "brings too much does so until the file is out of the branch's history: a revert keeps it there.",
    ),
    CodeEntry(
        code="GPU8016",
        title="a commit takes long to read",
        message="reading and compiling the newest commit has taken {took:duration} so far; the last good commit stays "
        "in force",
        why="Commits are fetched, read and compiled in the background. Jobs are scheduled by the last good commit "
        "meanwhile, and no newer commit is read until this one is done.",
        fix="Check what the newest commit adds, such as very large files: `gpuctl validate` takes as long. Revert it, "
        "or restart gpuctl after correcting the repository.",
    ),
    CodeEntry(
        code="GPU8017",
        title="the clone is shallow",
        message="{what} is not in {url}, a shallow clone: its history is cut off",
        why="CI systems fetch a few commits only. To compare two branches, gpuctl needs the commits of both, back to "
        "the one that they have in common. It fetches nothing by itself.",
        fix="Fetch more: `git fetch --deepen=50`, or `git fetch --unshallow`. In CI, `fetch-depth: 0` (GitHub) or "
        "`GIT_DEPTH: 0` (GitLab). A clone of one branch alone needs the other, too: `git fetch origin "
        "BRANCH:refs/remotes/origin/BRANCH`.",
    ),
    CodeEntry(
        code="GPU8018",
        title="the revisions have no commit in common",
        message="{base} and {head} have no commit in common, so there is no merge of the two to plan",
        why="The branches have separate histories: one of them was begun anew, or comes from another repository.",
        fix="Name the branch that head was begun from, or compare the two as they are with `--direct`.",
    ),
    CodeEntry(
        code="GPU8019",
        title="not an earlier commit",
        message="{revision} is not an earlier commit of {base}: there is nothing to go back to",
        why="A rollback goes back to a commit that base contains.",
        fix="Name a commit of base, such as `main~3`. `git log --oneline BASE -- FOLDER` lists those that changed the "
        "cluster's folder.",
    ),
    CodeEntry(
        code="GPU8020",
        title="the repository has no branch checked out",
        message="{url} has no branch checked out, and is at another commit than when gpuctl began to follow it",
        why="Without `--branch`, gpuctl follows the branch that the repository's HEAD names when it begins. HEAD named "
        "a commit and no branch then, so gpuctl stays at that commit. " + _KEEPS,
        fix="Start gpuctl with `--branch`.",
    ),
    CodeEntry(
        code="GPU8021",
        title="a commit's signature is not accepted",
        message="commit {revision} is not accepted: {why}",
        why="gpuctl was started with `--verify-signatures`: each commit since the last good one, or the newest one "
        "alone, needs a signature by one of the keys that it was given. Nothing of the newest commit is applied, and "
        "the last good one stays in force.",
        fix="Sign the commit (`git commit --amend -S`) or take it out of the branch, and push. For a person who may "
        "change the cluster, add the key to the file of `--allowed-signers` or `--openpgp-keys`. `git log "
        "--show-signature` shows what each commit is signed with. Where commits were not signed before, begin with "
        "`--verify-signatures head`, until a signed commit that changes a declaration is applied.",
    ),
    CodeEntry(
        code="GPU8022",
        title="the keys of those who may sign can't be read",
        message="{path} can't be read as {what}: {why}",
        why="Without these keys no signature can be checked, so no newer commit is applied. The last good one stays in "
        "force.",
        fix="Give `--allowed-signers` a file as `man ssh-keygen` describes it under ALLOWED SIGNERS, one line a key: "
        '`NAME namespaces="git" ssh-ed25519 AAAA...`; and `--openpgp-keys` a file made by `gpg --armor --export '
        "KEY...`. For OpenPGP, `gpg` must be on PATH; for SSH, `ssh-keygen`.",
    ),
    CodeEntry(
        code="GPU8024",
        title="nothing is committed yet",
        message="{url} has no commit yet: there is nothing to compare with",
        why="A plan compares with a commit, and the branch that is checked out has none.",
        fix="Commit what is there: `git add --all && git commit`. Before that, `gpuctl validate DIR` checks the "
        "declarations, and `gpuctl render DIR` prints their objects.",
    ),
    CodeEntry(
        code="GPU8025",
        title="a name of several things",
        message="{revision} may be a tag or a branch of {url}: both are there",
        why="Of a tag and a branch with one name Git takes the tag. Whoever may push a branch may push a tag that is "
        "called `origin/main`, too, and a change would be compared with itself.",
        fix="Name it in full: `refs/remotes/origin/main` for the branch of a remote, `refs/heads/NAME`, "
        "`refs/tags/NAME`. Or delete the one that should not be there: `git push origin --delete refs/tags/NAME`.",
    ),
    CodeEntry(
        code="GPU8026",
        title="a bare repository has no folders",
        message="{path} is in a bare repository, which has no working tree",
        why="A cluster is named by its folder in a working tree, also where two commits are compared. A bare "
        "repository is not looked for around a folder: a pull request may hold one, with settings of its own. The "
        "reconciler follows one by its address.",
        fix="Clone it, without its files if only commits are compared: `git clone --no-checkout FOLDER tree`. There "
        "name its branches: `gpuctl plan clusters/NAME --base origin/main --head origin/BRANCH`.",
    ),
)
