"""GPU8xxx: Git."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

_KEEPS = "What was last read goes on being enforced from the local clone, and the repository is asked again, less and "
_KEEPS += "less often up to every five minutes."

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
        why="The branch was never there, or was deleted or renamed. " + _KEEPS,
        fix="Push the branch, or start gpuctl with the right `--branch`.",
    ),
    CodeEntry(
        code="GPU8003",
        title="the path is not in the repository",
        message="there is no folder {path} at commit {revision}",
        why="The folder of the cluster was moved or deleted, or the path is mistyped. Nothing is deleted for that: "
        "what "
        "runs is kept as it was.",
        fix="Put the folder back, or start gpuctl with the right `--path`.",
    ),
    CodeEntry(
        code="GPU8004",
        title="not a Git repository",
        message="{url} is not a Git repository",
        why="The address answers, but not as a repository.",
        fix="Check the address; for a folder on this machine it is the one that holds `.git`, or a bare clone.",
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
        title="the commit is not known",
        message="commit {revision} is not in {url}",
        why="The commit was rewritten away, was never pushed, or the name is mistyped.",
        fix="Name a commit, tag or branch of the repository.",
    ),
    CodeEntry(
        code="GPU8007",
        title="the branch was rewritten",
        message="the branch was rewritten: {new} does not contain {old}, which was applied before",
        why="Somebody pushed with force. The branch is what counts, so the new commit is followed.",
        fix="If it was not meant, push the old commit again. Protect the branch against forced pushes.",
    ),
    CodeEntry(
        code="GPU8008",
        title="the repository address is not allowed",
        message="{url} is not an address gpuctl reads from",
        why="Repositories are read over https, ssh and file, or from a folder. Other transports can run commands or "
        "can be "
        "changed on their way.",
        fix="Use a folder, file:///PATH, https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH.",
    ),
    CodeEntry(
        code="GPU8009",
        title="a project stays at its last good commit",
        message="{owner} stays as of commit {revision}: its files at {head} can't be used",
        why="The newest commit has errors there. The last commit without errors stays in force for that part; every "
        "other "
        "part follows the newest one.",
        fix="Correct the errors listed with it.",
    ),
    CodeEntry(
        code="GPU8010",
        title="a project can't be read at any good commit",
        message="{owner} is left as it is: its files at {head} can't be used, and no good commit of it is known",
        why="The newest commit has errors there and an earlier good one is not in the repository any more, or there "
        "never was one. What runs of it is neither changed nor deleted.",
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
        why="The repository can't be read, or its cluster can't be compiled, and the cluster remembers no earlier "
        "commit.",
        fix="Correct the errors listed with it.",
    ),
    CodeEntry(
        code="GPU8013",
        title="the local clone is damaged",
        message="{folder} is damaged: objects of the commit are missing",
        why="A disk error or a kill at the wrong moment. gpuctl deletes its clone and fetches it again by itself.",
        fix="Nothing to do for gpuctl's own clone. A repository of yours: `git fsck` says what is missing. A partial "
        "clone lacks objects, and gpuctl has none fetched for it: `git fetch --refetch --no-filter` makes it whole.",
    ),
    CodeEntry(
        code="GPU8014",
        title="the cluster's folder has too much in it",
        message="{path} ({revision}) has more than {bound}: no more is read of one cluster",
        why="What is read of a commit is bounded, so that no commit can use up the memory or the time of the process: "
        "200,000 files and folders of any kind, 50,000 declaration files, and 32 MiB in those, below the cluster's "
        "folder and in its policies. The reconciler goes on with the last good commit.",
        fix="Keep what declares nothing outside of the cluster's folder, and divide the declarations among several "
        "clusters.",
    ),
    CodeEntry(
        code="GPU8015",
        title="git needs more than it is given",
        message="git was ended: {why}",
        why="Each git command has a minute, 384 MiB of memory and 1.5 GiB for a file, which also bounds what one fetch "
        "may bring. A repository with far more history or larger files, or one that is made to use them up, exceeds "
        "that. " + _KEEPS,
        fix="Take the commit back that needs so much, or keep the declarations in a repository of their own.",
    ),
    CodeEntry(
        code="GPU8016",
        title="a commit takes long to be read",
        message="the newest commit is being read and compiled for {took:duration}; what was good before stays in force",
        why="Commits are fetched, read and compiled beside the loop. Jobs go on being scheduled by the last good "
        "commit, but no newer one is seen until this one is done.",
        fix="See what the newest commit adds, say very large files: `gpuctl validate` on it takes as long. Take it "
        "back, or restart gpuctl once the repository was corrected.",
    ),
)
