"""GPU5xxx: decision reasons. 500x it runs, 501x-502x it waits, 503x it is paused, 504x a person or a limit stopped it,
505x it has ended. Amounts in parameters are GPUs as people write them; no parameter is a clock or a queue position."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

RUNS = (
    CodeEntry(
        code="GPU5001",
        title="runs within quota",
        message="runs within the quota of {project}",
        why="With this job the project holds no more GPUs than it is guaranteed.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5002",
        title="runs over quota, within fair share",
        message="runs over the quota of {project}, within its fair share of spare GPUs",
        why="Other projects leave GPUs unused, and this project's share of them covers the job.",
        fix="Nothing to do. The job may be paused when their owners want those GPUs; a higher quota prevents that.",
    ),
    CodeEntry(
        code="GPU5003",
        title="runs on idle GPUs",
        message="runs on GPUs that nobody else can use now, beyond the fair share of {project}",
        why="The job fits GPUs that would stand idle otherwise.",
        fix="Nothing to do. It is among the first to be paused when somebody has a claim on those GPUs.",
    ),
    CodeEntry(
        code="GPU5004",
        title="runs without a GPU",
        message="runs without a GPU",
        why="The job asks for no GPU; only CPU and memory were needed.",
        fix="Nothing to do.",
    ),
)

WAITS = (
    CodeEntry(
        code="GPU5010",
        title="no free GPUs",
        message="waits for {gpus} GPUs in {pools}: not as many are free, and none in use may be taken for it",
        why="The job is within its project's share, but whatever holds GPUs now is protected.",
        fix="It starts when jobs end. Widen its nodePools, or ask for fewer GPUs.",
    ),
    CodeEntry(
        code="GPU5011",
        title="over the fair share",
        message="waits: with {gpus} GPUs more {project} would be above its fair share, and not as many are idle",
        why="Beyond its fair share a project gets idle GPUs only.",
        fix="It starts when GPUs become idle, or when another job of the project ends; a higher quota starts it now.",
    ),
    CodeEntry(
        code="GPU5012",
        title="over the limit",
        message="waits: with {gpus} GPUs more {owner} would be above its limit of {limit}",
        why="A limit is a ceiling, idle GPUs or not.",
        fix="It starts when other jobs under that limit end; or raise spec.limit.",
    ),
    CodeEntry(
        code="GPU5013",
        title="not preemptible, beyond quota",
        message="waits: {gpus} GPUs more that can't be paused would take {project} beyond its quota of {quota}",
        why="GPUs above the quota are lent; only a job that can be paused may use them.",
        fix="Set preemptible: true, stop another such job of the project, or raise its quota.",
    ),
    CodeEntry(
        code="GPU5014",
        title="no node is large enough",
        message="can't run: {workers} x {gpus} GPUs fit no nodes of {pools}, not even empty ones",
        why="GPUs, CPU, memory, health or sharing of the nodes there are don't suffice, whoever else runs.",
        fix="Ask for less per worker, widen nodePools, or bring nodes (back).",
    ),
    CodeEntry(
        code="GPU5015",
        title="free GPUs are scattered",
        message="waits: {gpus} GPUs are free in {pools}, but not together on one node or device",
        why="All GPUs of a worker must be on one node, and a fraction on one device.",
        fix="It starts when a node empties enough; smaller workers fit sooner.",
    ),
    CodeEntry(
        code="GPU5016",
        title="not all workers fit",
        message="waits: not all {workers} workers with {gpus} GPUs each fit in {pools} at once",
        why="The workers of one job start together or not at all.",
        fix="It starts when enough GPUs are free; fewer or smaller workers start sooner.",
    ),
    CodeEntry(
        code="GPU5017",
        title="CPU or memory is short",
        message="waits for CPU and memory in {pools}: nodes with enough free GPUs lack them",
        why="A worker needs its CPU and memory on the node of its GPUs.",
        fix="Lower resources.cpu or resources.memory if the job needs less, or wait for jobs to end.",
    ),
    CodeEntry(
        code="GPU5018",
        title="waits for paused jobs to leave",
        message="starts as soon as {victims} left the GPUs reserved for it",
        why="Those jobs were paused for this one and are still stopping.",
        fix="Nothing to do; a long terminationGracePeriod of theirs delays it.",
    ),
    CodeEntry(
        code="GPU5019",
        title="waits for stopping jobs to leave",
        message="starts as soon as jobs that are stopping left the GPUs reserved for it",
        why="Enough GPUs are about to become free; nobody needs to be paused.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5020",
        title="still stopping",
        message="waits until its own pods are gone",
        why="The run was paused and its pods have not ended yet.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5021",
        title="its project is held",
        message="left as it is: {project} is held",
        why="No good commit of the project's files can be read, its namespace is somebody else's, or its ledger is "
        "damaged. Until that is mended nothing of the project is started, paused or removed.",
        fix="See what `gpuctl reconcile` reports of the project (GPU8010, GPU6004 or GPU7008).",
    ),
    CodeEntry(
        code="GPU5022",
        title="its project is not declared",
        message="can't run: project {project} is not declared",
        why="Only a declared project has a share of the GPUs.",
        fix="Declare the project.",
    ),
    CodeEntry(
        code="GPU5023",
        title="waits until another has started",
        message="starts as soon as the pods of {other} have their nodes: its GPUs are reserved, and both start there",
        why="All workers of a job have one pod template, and Kubernetes deals them among the nodes and GPUs that it "
        "names. Of two jobs that could be given each other's GPUs in that, one starts first.",
        fix="Nothing to do: it takes a moment.",
    ),
)

PAUSED = (
    CodeEntry(
        code="GPU5030",
        title="paused under the quota guarantee",
        message="paused for {beneficiary}, which is within its project's quota",
        why="The job ran on GPUs above its own project's quota, and their owner wants them.",
        fix="It runs again when GPUs are free; a higher quota or preemptible: false (within quota) protects it.",
    ),
    CodeEntry(
        code="GPU5031",
        title="paused for a fairer share",
        message="paused for {beneficiary}, whose project has less than its fair share",
        why="Its own project keeps at least its fair share without it.",
        fix="It runs again when GPUs are free; a higher quota or overQuotaWeight protects more.",
    ),
    CodeEntry(
        code="GPU5032",
        title="paused for a job of higher priority",
        message="paused for {beneficiary}, a job of its own project with higher priority",
        why="Inside a project, higher priority goes first.",
        fix="Raise its priority, or wait.",
    ),
    CodeEntry(
        code="GPU5033",
        title="paused for interactive work",
        message="paused for {beneficiary}, interactive work of its own project within quota",
        why="Inside a project, people and services go before training.",
        fix="It runs again when GPUs are free.",
    ),
    CodeEntry(
        code="GPU5034",
        title="its node is lost",
        message="paused because node {node} is gone or not ready",
        why="A run can't go on without all of its nodes.",
        fix="It starts elsewhere as soon as there is room; look after the node.",
    ),
    CodeEntry(
        code="GPU5035",
        title="its GPU is given out twice",
        message="paused because a GPU of node {node} was given to more jobs than it holds",
        why="Pods were placed by hand, or the node lost devices while they ran.",
        fix="It starts elsewhere as soon as there is room.",
    ),
    CodeEntry(
        code="GPU5036",
        title="its node takes no new pods",
        message="paused because node {node} takes no new pods, and not all of its own were there yet",
        why="The node was cordoned or tainted before the pod was bound there, or while one was to be made again.",
        fix="It starts elsewhere as soon as there is room; uncordon the node when it may be used again.",
    ),
)

STOPPED = (
    CodeEntry(
        code="GPU5040",
        title="suspended in its declaration",
        message="suspended in its declaration",
        why="A person asked for a pause with suspend: true.",
        fix="Remove suspend: true.",
    ),
    CodeEntry(
        code="GPU5041",
        title="maxDuration reached",
        message="ended after its maxDuration",
        why="The job, or its project for jobs of this type, sets how long a run may take.",
        fix="Raise maxDuration, then runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5042",
        title="idle too long",
        message="ended because its GPUs were idle longer than its idleTimeout",
        why="The project frees GPUs that interactive work leaves unused.",
        fix="Raise runIndex to run it again, or the project's interactive.idleTimeout.",
    ),
)

ENDED = (
    CodeEntry(
        code="GPU5050",
        title="succeeded",
        message="succeeded",
        why="Its pods ended without an error.",
        fix="Raise runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5051",
        title="failed",
        message="failed",
        why="Its pods ended with an error more often than retries allows.",
        fix="Read its logs; raise runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5052",
        title="timed out",
        message="ended by a time limit",
        why="maxDuration or idleTimeout ended the run.",
        fix="Raise the limit and runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5053",
        title="deleted",
        message="its object was deleted in the cluster; it is not started again",
        why="Somebody removed the run by hand, and gpuctl never runs anything twice by itself.",
        fix="Raise runIndex to run it again, or remove the declaration.",
    ),
)

BARRED = (
    CodeEntry(
        code="GPU5070",
        title="the API server refuses its object",
        message="the API server refuses its object; gpuctl's log says why",
        why="The object breaks a rule of the server, of one of its admission policies, or of a quota of the namespace. "
        "The job keeps no place until it can be written. It is tried again when its project's or the cluster's files "
        "change, and every minute.",
        fix="Correct what the log names, or ask who runs the cluster.",
    ),
    CodeEntry(
        code="GPU5071",
        title="waits until the change is confirmed",
        message="its old run goes on until the change is confirmed",
        why="Too many running jobs were changed at once: GPU6007.",
        fix="See `gpuctl explain GPU6007`.",
    ),
    CodeEntry(
        code="GPU5072",
        title="an object that gpuctl did not make has its run's name",
        message="an object that gpuctl did not make has the name of its run: gpuctl's log names it",
        why="gpuctl takes an object for a run's own only if it made it, and changes and removes no other.",
        fix="Delete the object, or give it another name.",
    ),
    CodeEntry(
        code="GPU5073",
        title="its object can't be read",
        message="its object can't be read, and is left as it is; gpuctl's log says why",
        why="Something in the object is not what gpuctl expects of any. If it runs it goes on: nothing is decided.",
        fix="Put back what was changed in the object. If it was nothing, report it: gpuctl should have read it.",
    ),
)

KEPT = (
    CodeEntry(
        code="GPU5080",
        title="a place is kept for it as it empties",
        message="has waited longest for GPUs in {pool}: a place there is kept for it as it empties",
        why="It has waited longer than starvationGuard. The place is the one that can be free soonest, by what is left "
        "of maxDuration to the jobs there; others start there only if they end before that.",
        fix="Nothing to do. A maxDuration on other jobs makes the wait known and lets short ones use what is kept.",
    ),
    CodeEntry(
        code="GPU5081",
        title="free GPUs are kept for another",
        message="waits: GPUs that are free are kept for {oldest}, which has waited longest",
        why="A large job never starts if every GPU that becomes free goes to a small one, so after starvationGuard a "
        "place is kept for it.",
        fix="It starts after that job, or now with a maxDuration that ends before that job can start.",
    ),
    CodeEntry(
        code="GPU5082",
        title="moved to make room",
        message="paused to go on elsewhere at once: {beneficiary} fits only where it was",
        why="Enough GPUs were free, but scattered. Of all ways to bring them together this one loses the least work.",
        fix="Nothing to do: a place is reserved for it. scheduling.consolidation: false forbids it.",
    ),
)

ELASTIC = (
    CodeEntry(
        code="GPU5090",
        title="gave up workers",
        message="goes on with {workers} of its {declared} workers: the others made way for {beneficiary}",
        why="Somebody was entitled to their GPUs, and minWorkers says that the job can do without them. Such workers "
        "go before any job is paused.",
        fix="Nothing to do. It grows again when GPUs are idle where its pods can go, else at its next start.",
    ),
)

ENTRIES: tuple[CodeEntry, ...] = (*RUNS, *WAITS, *BARRED, *PAUSED, *STOPPED, *ENDED, *KEPT, *ELASTIC)
