# syntax=docker/dockerfile:1
# The image of Palang: one binary on distroless, as /palang and as envoyproxy/ratelimit's three programs in /bin.
#
#   docker build -t palang .
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/palang:TAG --push .

# Always runs on the machine that builds, and compiles for the other architecture: emulation takes an hour.
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95-bookworm AS build
ARG TARGETARCH
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# The compiler and C library of the other architecture; Debian keeps only the newest version of a package.
# hadolint ignore=DL3008
RUN case "$TARGETARCH" in \
      amd64) machine=x86_64 ;; \
      arm64) machine=aarch64 ;; \
      *) echo "no recipe for $TARGETARCH" >&2; exit 1 ;; \
    esac; \
    echo "$machine" > /machine; \
    rustup target add "$machine-unknown-linux-gnu"; \
    if [ "$TARGETARCH" != "$(dpkg --print-architecture)" ]; then \
      apt-get update; \
      apt-get install -y --no-install-recommends "gcc-${machine/_/-}-linux-gnu" "libc6-dev-$TARGETARCH-cross"; \
      rm -rf /var/lib/apt/lists/*; \
    fi

WORKDIR /src
COPY . .
ENV CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CC_x86_64_unknown_linux_gnu=x86_64-linux-gnu-gcc \
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
# Two architectures may be built at once: each has caches of its own.
RUN --mount=type=cache,id=palang-cargo-$TARGETARCH,target=/usr/local/cargo/registry \
    --mount=type=cache,id=palang-target-$TARGETARCH,target=/src/target \
    machine=$(cat /machine); \
    target="$machine-unknown-linux-gnu"; \
    cargo build --locked --release --bin palang --target "$target"; \
    mkdir -p /image/bin; \
    cp "target/$target/release/palang" /image/palang; \
    "$machine-linux-gnu-strip" --strip-debug /image/palang; \
    ln -s /palang /image/bin/ratelimit; \
    ln -s /palang /image/bin/ratelimit_client; \
    ln -s /palang /image/bin/ratelimit_config_check

# glibc, libgcc and the certificates of public CAs; no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Palang" \
      org.opencontainers.image.description="A rate-limit decision service, drop-in for envoyproxy/ratelimit" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/palang/palang" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"

COPY --from=build /image/palang /palang
# A directory, so that the link in it stays a link.
COPY --from=build /image/bin/ /bin/

# Any other uid will do: it writes nowhere.
USER 65532:65532
# gRPC, HTTP, metrics. The debug port listens on loopback only.
EXPOSE 8081 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/palang"]
CMD ["serve"]
