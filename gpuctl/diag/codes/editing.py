"""GPU6101-6139: edits of declarations, and the commits that hold them."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6101",
        title="the field can't be edited where it stands",
        message="{what} can't be edited: {why}",
        why="gpuctl changes the lines of one field and no others. That is not possible where YAML shares a value by an "
        "alias, or where comments stand in the value that would be replaced.",
        fix="Edit the file by hand; `gpuctl validate` checks it.",
    ),
    CodeEntry(
        code="GPU6102",
        title="the edit would change something else",
        message="the edit of {what} is not made: the file would then say something else than intended",
        why="The result of each edit is read again before anything is written: every document must say what it said, "
        "but for the one field. An anchor in the value, or an unusual layout, can make that impossible.",
        fix="Edit the file by hand; `gpuctl validate` checks it.",
    ),
    CodeEntry(
        code="GPU6103",
        title="the file can't be written",
        message="{path} can't be written: {why}",
        why="gpuctl writes only ordinary files inside the repository. A symbolic link that leads out of it is not "
        "followed.",
        fix="Name a file below the cluster's folder that you may write.",
    ),
    CodeEntry(
        code="GPU6104",
        title="the job is declared already",
        message="job {job} is declared already, in {place}",
        why="A job is one declaration. Whether it has run makes no difference.",
        fix="Choose another name, or edit that file. To run a finished job again, raise its `runIndex`.",
    ),
    CodeEntry(
        code="GPU6105",
        title="there is no such declaration",
        message="{what} is not declared in {folder}{meant}",
        why="The command edits a declaration in the working tree; the name must be in the files that are checked out.",
        fix="Check the name, the project and the branch: `git switch`, `git pull`. `--path DIR` names another cluster. "
        "A job of a sweep is declared with all of it, under the sweep's name.",
    ),
    CodeEntry(
        code="GPU6106",
        title="the file was changed meanwhile",
        message="{path} was changed by something else while it was edited; nothing is written",
        why="An editor or another command has written the file after gpuctl had read it.",
        fix="Run the command again.",
    ),
    CodeEntry(
        code="GPU6107",
        title="which cluster is meant is not known",
        message="which cluster is meant is not known: {why}",
        why="A cluster is a folder. Without `--path`, it is the one that the command is run in, else the only one in "
        "the repository's `clusters/`, else the only one of those that declares the project.",
        fix="Name it: `--path clusters/NAME`.",
    ),
    CodeEntry(
        code="GPU6108",
        title="not a place for a declaration",
        message="{path} is no place for the declaration: {why}",
        why="What is declared must be read with the cluster: in a file that ends in .yaml or .yml, below the cluster's "
        "folder, outside of hidden folders. A file that exists already is extended only if `--file` names it.",
        fix="Name another file: `--file PATH`.",
    ),
    CodeEntry(
        code="GPU6109",
        title="declared more than once",
        message="{what} is declared more than once: {places}",
        why="It is not known which of the declarations is to be edited.",
        fix="Remove all but one of them.",
    ),
    CodeEntry(
        code="GPU6110",
        title="the file has changes that are not committed",
        message="{path} has other changes that are not committed yet, which the commit would take along",
        why="With `--commit`, the commit holds the edit and nothing else.",
        fix="Commit them or `git stash` them first, or edit without `--commit`.",
    ),
    CodeEntry(
        code="GPU6111",
        title="git does not know the author",
        message="git does not know whose name the commit has: {why}",
        why="A commit names its author. gpuctl takes the name and the address from Git's settings and makes none up.",
        fix='`git config --global user.name "Your Name"` and `git config --global user.email you@example.com`.',
    ),
    CodeEntry(
        code="GPU6112",
        title="no branch is checked out",
        message="no branch is checked out in {folder}: the commit would belong to none",
        why="HEAD is a commit, not a branch, as after `git checkout COMMIT` or in a CI job.",
        fix="Name a new branch: `--branch NAME`.",
    ),
    CodeEntry(
        code="GPU6113",
        title="a merge or rebase is under way",
        message="{what} is under way in {folder}",
        why="A commit now would become a part of it.",
        fix="Finish or abort it first; `git status` says how. Or edit without `--commit`.",
    ),
    CodeEntry(
        code="GPU6114",
        title="the branch can't be made",
        message="branch {branch} can't be made: {why}",
        why="`--branch` makes a new branch at the commit that is checked out, and switches to it.",
        fix="Choose another name, or switch to the branch first and leave out `--branch`.",
    ),
    CodeEntry(
        code="GPU6115",
        title="the push failed",
        message="the commit is made, but could not be pushed to {remote}: {why}",
        why="The other side has commits that this repository has not, protects the branch, or knows no such user.",
        fix="`git pull --rebase` and `git push`; for a protected branch, commit with `--branch NAME`.",
    ),
    CodeEntry(
        code="GPU6116",
        title="the commit failed",
        message="the file is written, but could not be committed: {why}",
        why="Git refused to write the commit or its index, for example because another git command is running.",
        fix="Commit it by hand: `git add` and `git commit`.",
    ),
    CodeEntry(
        code="GPU6117",
        title="the edit would add errors",
        message="nothing is written: the edit of {what} would add {errors}",
        why="The whole cluster is compiled with the edit before it is written.",
        fix="Correct what the errors above name, in the command or in the other declarations.",
    ),
    CodeEntry(
        code="GPU6118",
        title="not committed: the declarations have errors",
        message="{path} is written, but not committed: the declarations have {errors}",
        why="A commit whose declarations can't be compiled is not applied. These errors were there before the edit.",
        fix="Correct them, and commit.",
    ),
    CodeEntry(
        code="GPU6119",
        title="gpuctl's own settings can't be used",
        message="{path}: {why}",
        why="The file holds the defaults of the command line, such as the project. It is at most 64 KiB.",
        fix="Correct or remove the file. `gpuctl config project NAME` writes it.",
    ),
    CodeEntry(
        code="GPU6120",
        title="not formatted",
        message="{path} is not formatted",
        why="`gpuctl fmt --check` compares each file with what `gpuctl fmt` would make of it.",
        fix="Run `gpuctl fmt`.",
    ),
    CodeEntry(
        code="GPU6121",
        title="the file can't be formatted",
        message="{path} can't be formatted: {why}",
        why="A file is formatted only if it is right YAML, and if the result says the same and has all its comments.",
        fix="Correct it; `gpuctl validate` tells all mistakes.",
    ),
    CodeEntry(
        code="GPU6122",
        title="no pull request can be opened",
        message="no pull request can be opened: {why}",
        why="The code host and the repository are read off the remote's address: github.com, gitlab.com, or the host "
        "of the API that GITHUB_API_URL or CI_API_V4_URL names; the token goes nowhere else. The branch of the commit "
        "is to be merged into the one that the remote has checked out, else into the one that was checked out here.",
        fix="Commit on a branch of its own with `--branch NAME`, or open the request by hand after `--push`.",
    ),
    CodeEntry(
        code="GPU6123",
        title="the commit can't be signed",
        message="the file is written, but not committed: the commit can't be signed: {why}",
        why="Git's settings ask for signed commits (commit.gpgSign), and gpuctl signs with the key and the program of "
        "the user's settings, as `git commit` does. It has no terminal to ask for a passphrase, and runs no program "
        "that only the repository's own settings name.",
        fix="Unlock the key for the agent (`ssh-add`, or gpg's), set user.signingKey, or commit by hand: `git commit`.",
    ),
)
