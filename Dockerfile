# The image of `gpuctl install`: build it at a checkout's root, `docker build -t gpuctl:0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .`
# The base is the index of all platforms; `docker buildx imagetools inspect python:3.13-slim` prints the newest one's.
FROM python:3.13.14-slim@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6 AS build
WORKDIR /src
COPY requirements.txt ./
RUN ["python", "-m", "venv", "/opt/gpuctl"]
RUN ["/opt/gpuctl/bin/pip", "install", "--no-cache-dir", "--require-hashes", "-r", "requirements.txt"]
COPY . .
# Files of a wheel are of this time, whenever it is built.
ARG SOURCE_DATE_EPOCH=1580601600
RUN ["/opt/gpuctl/bin/pip", "install", "--no-cache-dir", "--no-deps", "--no-build-isolation", "."]

FROM python:3.13.14-slim@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpuctl" \
      org.opencontainers.image.description="GPU projects, quotas and jobs declared in Git, reconciled into Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.documentation="docs/install.md" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git gpg openssh-client \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 65532 --user-group --no-create-home --home-dir /nonexistent gpuctl
COPY --from=build /opt/gpuctl /opt/gpuctl
# For commands in a running pod, as of `gpuctl replay --context`.
ENV PATH=/opt/gpuctl/bin:$PATH
USER 65532:65532
ENTRYPOINT ["/opt/gpuctl/bin/gpuctl"]
