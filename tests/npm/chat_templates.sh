#!/usr/bin/env bash
# Brings the chat templates of some 70 released models, llama.cpp's models/templates, into node_modules/.chat_templates.
# They come from the git bundle of llama.cpp inside the npm package node-llama-cpp, pinned by its digest. The package is
# unpacked, not installed: its dependencies and its binaries for other machines are not wanted. Quick when done before.
set -euo pipefail
cd "$(dirname "$0")"

version=3.22.1
sha512=6e5b488a9b9699cd76dc7eed30880318a4ac4ab866865418795502e3c5d38d55bb5c624988927209d95333343f2e25a83e4183a5c2f816f883a60c3ba9f4e20f
out=node_modules/.chat_templates
[ "$(cat "$out/.version" 2>/dev/null)" = "$version" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack "node-llama-cpp@$version" --pack-destination "$work" --silent >/dev/null
echo "$sha512  $work/node-llama-cpp-$version.tgz" | sha512sum --check --quiet
tar -xzf "$work/node-llama-cpp-$version.tgz" -C "$work" package/llama/gitRelease.bundle
git clone --quiet --bare "$work/package/llama/gitRelease.bundle" "$work/llama.git"
mkdir -p "$out"
git --git-dir="$work/llama.git" archive HEAD models/templates | tar -x -C "$out" --strip-components=2
echo "$version" >"$out/.version"
