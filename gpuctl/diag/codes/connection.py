"""GPU701x and GPU702x: reaching the API server, and what it lets us do."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7010",
        title="no kubeconfig",
        message="there is no kubeconfig: {looked}",
        why="gpuctl finds a cluster by `--kubeconfig`, by KUBECONFIG, in ~/.kube/config, or by the service account of "
        "the pod it runs in. None of these is there.",
        fix="Name a kubeconfig, or run gpuctl in the cluster with the manifests of `gpuctl install`.",
    ),
    CodeEntry(
        code="GPU7011",
        title="the kubeconfig can't be used",
        message="{where} can't be used: {why}",
        why="The file can't be read, is no kubeconfig, or names a certificate that is not there.",
        fix="`kubectl --kubeconfig FILE cluster-info` shows the same failure. Correct the file.",
    ),
    CodeEntry(
        code="GPU7012",
        title="the kubeconfig has no such context",
        message="{where} has no context {context}; it has {known}",
        why="The context is mistyped, or the file is another one than was meant.",
        fix="Name one of its contexts with `--context`, or choose one by `kubectl config use-context`.",
    ),
    CodeEntry(
        code="GPU7013",
        title="no credentials",
        message="{where} gives no credentials: {why}",
        why="There is no token and no certificate to identify with, or the command that should give one failed. "
        "Without them the server would see an anonymous user.",
        fix="Log in again, run the command that the kubeconfig names by hand, or mount the service account's token.",
    ),
    CodeEntry(
        code="GPU7014",
        title="the API server does not accept the credentials",
        message="{server} does not accept the credentials of {where}: {why}",
        why="The token or certificate has expired, was revoked, or belongs to another cluster. It was read anew once "
        "before this was said.",
        fix="Log in again, or issue a new token. gpuctl reads the credentials anew by itself from then on.",
    ),
    CodeEntry(
        code="GPU7015",
        title="a right is missing",
        message="{user} may not {verb} {resource}{where}; the rule to add: {rule}",
        why="The account that gpuctl runs as has no RBAC rule for this. What needs it is left undone.",
        fix="Apply the ClusterRole that `gpuctl install` prints, or add the rule that the message shows.",
    ),
    CodeEntry(
        code="GPU7016",
        title="not the leader",
        message="{what} is not sent: another replica may be the leader by now",
        why="The lease was not renewed in time, so this process may not write. Another replica decides from what is "
        "there.",
        fix="Nothing, when it happens once. Else see why the lease in namespace gpuctl-system is not renewed.",
    ),
    CodeEntry(
        code="GPU7017",
        title="the watch breaks again and again",
        message="{resource} can't be watched: {why}; listed again in {wait:duration}",
        why="The server has forgotten the version of the list it gave shortly before. Lists are costly, so the next is "
        "asked for later and later.",
        fix="See whether the API server is overloaded or its etcd compacts too often.",
    ),
    CodeEntry(
        code="GPU7018",
        title="the API server's certificate is not trusted",
        message="the certificate of {server} is not trusted: {why}",
        why="The certificate authority of the kubeconfig did not sign it, it is for another name, or it has expired. "
        "Nothing was sent.",
        fix="Use a kubeconfig of this cluster, as its installer writes it.",
    ),
    CodeEntry(
        code="GPU7019",
        title="the server does not serve everything",
        message="the server is Kubernetes {version} and does not serve {kinds}: needed for {uses}; the rest works",
        why="gpuctl is made for Kubernetes 1.34 and newer. An older server, or one with parts switched off, lacks what "
        "the message names. Whatever does not need that works as ever.",
        fix="Upgrade the cluster, or declare nothing that needs what is missing.",
    ),
    CodeEntry(
        code="GPU7020",
        title="not a Kubernetes API server",
        message="{server} does not answer as a Kubernetes API server: {why}",
        why="Something else answers at that address: a proxy, a login page, another service.",
        fix="Check the server's address in the kubeconfig, and HTTPS_PROXY and NO_PROXY.",
    ),
)
