"""GPU701x and GPU702x: the connection to the API server, and missing rights."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7010",
        title="no kubeconfig",
        message="there is no kubeconfig: {looked}",
        why="gpuctl finds a cluster by `--kubeconfig`, by KUBECONFIG, in ~/.kube/config, or by the service account of "
        "the pod it runs in. None of these is there.",
        fix="Name one with --kubeconfig FILE. Without Kubernetes: --embedded FILE, the file that `gpuctl reconcile` "
        "has made by this option; for `plan` also --state FILE. `gpuctl install` prints what runs it in a cluster.",
    ),
    CodeEntry(
        code="GPU7011",
        title="the kubeconfig can't be used",
        message="{where} can't be used: {why}",
        why="The file can't be read, is not a kubeconfig, names a certificate that does not exist or a proxy that is "
        "no `http://HOST:PORT`. Or its user acts as another one (`as`), which all commands do but those that open a "
        "session: `exec`, `bash`, `port-forward`. They would have the rights of the user itself.",
        fix="`kubectl --kubeconfig FILE cluster-info` shows the same failure. Correct the file; for sessions, give the "
        "context credentials of its own in place of `as`.",
    ),
    CodeEntry(
        code="GPU7012",
        title="the kubeconfig has no such context",
        message="{where} has no context {context}; it has {known}",
        why="The context is mistyped, or this is the wrong file.",
        fix="Name one of its contexts with `--context`, or choose one by `kubectl config use-context`.",
    ),
    CodeEntry(
        code="GPU7013",
        title="no credentials",
        message="{where} gives no credentials: {why}",
        why="The kubeconfig has no token and no certificate, or the command that should print one failed. Without "
        "credentials the server would see an anonymous user.",
        fix="Log in again, run the command that the kubeconfig names by hand, or mount the service account's token.",
    ),
    CodeEntry(
        code="GPU7014",
        title="the API server does not accept the credentials",
        message="{server} does not accept the credentials of {where}: {why}",
        why="The token or certificate has expired, was revoked, or belongs to another cluster. gpuctl read it again "
        "once before this message.",
        fix="Log in again, or issue a new token. gpuctl then reads the new credentials by itself.",
    ),
    CodeEntry(
        code="GPU7015",
        title="a right is missing",
        message="{user} may not {verb} {resource}{where}; the rule to add: {rule}",
        why="The account has no RBAC rule for this. Whatever needs it is skipped. The controller tells it once it was "
        "refused for five seconds: an API server that has just started refuses all until it has read its roles.",
        fix="A person is given a role by the command that is shown: gpuctl-reader to look, edit in the "
        "project's namespace for commands in containers. For the controller, apply again what `gpuctl install` prints.",
    ),
    CodeEntry(
        code="GPU7016",
        title="not the leader",
        message="{what} is not sent: another replica may be the leader now",
        why="The Lease was not renewed in time, so this process may not write. Another replica takes over from the "
        "state of the cluster.",
        fix="Nothing to do if it happens once. Else check why the Lease in namespace gpuctl-system is not renewed.",
    ),
    CodeEntry(
        code="GPU7017",
        title="the watch breaks repeatedly",
        message="{resource} can't be watched: {why}; listed again in {wait:duration}",
        why="The server no longer has the version of the list that it returned shortly before. Lists are costly, so "
        "gpuctl lists again with growing intervals.",
        fix="Check whether the API server is overloaded or its etcd compacts too often.",
    ),
    CodeEntry(
        code="GPU7018",
        title="the API server's certificate is not trusted",
        message="the certificate of {server} is not trusted: {why}",
        why="The certificate authority of the kubeconfig did not sign it, it is for another name, or it has expired. "
        "Nothing was sent.",
        fix="Use a kubeconfig of this cluster, as its installer writes it. gpuctl then reads it by itself.",
    ),
    CodeEntry(
        code="GPU7019",
        title="the server does not serve everything",
        message="the server is Kubernetes {version} and does not serve {kinds}: needed for {uses}; the rest works",
        why="gpuctl needs Kubernetes 1.34 or newer. An older server, or one with features disabled, lacks what the "
        "message names. Everything that does not need it works.",
        fix="Upgrade the cluster, or do not declare what needs the missing kinds.",
    ),
    CodeEntry(
        code="GPU7020",
        title="not a Kubernetes API server",
        message="{server} does not answer as a Kubernetes API server: {why}",
        why="Something else answers at that address: a proxy, a login page, another service.",
        fix="Check the server's address in the kubeconfig, and HTTPS_PROXY and NO_PROXY.",
    ),
    CodeEntry(
        code="GPU7021",
        title="no rights on a kind that the Cluster declares",
        message="gpuctl may not read or write {kind}, a kind of the Cluster's workloadKinds: jobs that are one can't "
        "start",
        why="What gpuctl may read and write is fixed by its installation. The Cluster declares the kind, and the "
        "installation was made before, or without the Cluster.",
        fix="Apply `gpuctl install --cluster DIR` with the options of the installation; DIR is the cluster's folder.",
    ),
    CodeEntry(
        code="GPU7022",
        title="a kind that the Cluster declares is not there",
        message="the API server has no {kind} in namespaces, a kind of the Cluster's workloadKinds: jobs that are one "
        "can't start",
        why="Its definition comes with its controller, which is not installed; or its apiVersion is another one; or "
        "its objects are in no namespace, and so no job's.",
        fix="Install the controller, or take the kind out of workloadKinds.",
    ),
    CodeEntry(
        code="GPU7025",
        title="a kind of another controller can't be read now",
        message="{kind} can't be read now, so jobs that are one are left as they are: {why}",
        why="The API server answers for other kinds. Often the webhook that converts between versions of the kind is "
        "not running, which comes with its controller.",
        fix="Look why the kind's controller, or its webhook, does not run: `kubectl get` of the kind fails as well. "
        "gpuctl goes on by itself.",
    ),
    CodeEntry(
        code="GPU7026",
        title="there are runs of a kind that can't be read",
        message="{kind} can't be read, and there are runs that are one: which GPUs these hold is not known, so nothing "
        "can be decided: {why}",
        why="What an answer of the engine is made of is not known here: the kind was never read, or it had no object "
        "then. A controller that has read these objects before leaves their runs as they are, and goes on with all "
        "others.",
        fix="Have the kind's controller and its webhook run again, or give the account the right to the kind. Until "
        "then `gpuctl list`, `get`, `explain JOB` without DIR and the dashboard show all that can be read.",
    ),
)
