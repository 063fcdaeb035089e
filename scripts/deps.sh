#!/usr/bin/env bash
# Installs what the build and the tests need: Debian packages, then the pinned npm packages the tests compare with.
# Quick when everything is there. `scripts/deps.sh build` leaves out what only the tests need. The coding agent of
# tests/npm/pi is 350 MB, 185 of them the Node.js it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build make pkg-config ccache libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev
                libpcre2-dev libutf8proc-dev libboost1.81-dev libssl-dev prometheus-cpp-dev)
test_packages=(libgtest-dev libbenchmark-dev g++-aarch64-linux-gnu qemu-user-static python3 python3-jinja2 clang lld libclang-rt-14-dev clang-format clang-tidy
               openssl haproxy systemd dpkg-dev)

packages=("${build_packages[@]}")
[ "${1:-all}" = build ] || packages+=("${test_packages[@]}")
# A Node.js of another origin brings its own npm, which Debian's npm package would conflict with.
if [ "${1:-all}" != build ] && ! command -v npm >/dev/null; then packages+=(nodejs npm); fi

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${Status}' "$p" 2>/dev/null)" = "install ok installed" ] || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "Installing: ${missing[*]}"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

install_npm() {  # FOLDER
  cmp -s "$1/package-lock.json" "$1/node_modules/.installed" && return
  npm ci --prefix "$1" --no-audit --no-fund --loglevel=error
  cp "$1/package-lock.json" "$1/node_modules/.installed"
}
if [ "${1:-all}" != build ]; then
  install_npm tests/npm
  install_npm tests/npm/pi
  tests/npm/chat_templates.sh
fi
