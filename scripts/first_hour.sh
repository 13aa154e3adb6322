#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Goes the way of docs/start/first_hour.md as a new user does: runs the page's commands, and fails where one fails or a step takes
# longer than its heading says.
#
#   scripts/first_hour.sh [--build=FOLDER] [--page=FILE]
#
# --build   of a build that is there already, with its tools: the steps that compile the library are left out

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

page=docs/start/first_hour.md
build=
for argument in "$@"; do
  case "$argument" in
    --build=*) build=${argument#*=} ;;
    --page=*) page=${argument#*=} ;;
    -h | --help) sed -n '1,3d; /^#/!q; s/^# \{0,1\}//; p' "$0"; exit 0 ;;
    *) printf 'first_hour.sh: unknown argument %s; see --help\n' "$argument" >&2; exit 2 ;;
  esac
done
mkdir -p build

# The page as a script: "## 3. What is here (1 minute)" begins a step, blocks of sh are its commands.
steps=$(awk -v skip="${build:+yes}" '
  /^## [0-9]+\. .*\([0-9]+ minutes?\)$/ {
    title = $0; sub(/^## /, "", title); sub(/ \([0-9]+ minutes?\)$/, "", title)
    minutes = $0; sub(/.*\(/, "", minutes); sub(/ .*/, "", minutes)
    compiles = 0
  }
  /^<!-- compiles -->$/ { compiles = 1 }
  /^```/ {
    if (inside) { print "finish"; inside = 0 }
    else if ($0 == "```sh" && title != "" && !(compiles && skip)) { printf "begin %d \"%s\"\n", minutes, title; inside = 1 }
    next
  }
  inside { print }' "$page")
[ -n "$steps" ] || { printf 'first_hour.sh: %s has no steps\n' "$page" >&2; exit 2; }

build=$build bash -euo pipefail -c '
late=
begin() { limit=$(($1 * 60)) title=$2; printf "\n== %s\n" "$2"; since=$SECONDS; }
finish() {
  local took=$((SECONDS - since))
  printf "== %d s of %d\n" "$took" "$limit"
  [ "$took" -le "$limit" ] || late="$late; \"$title\" took $took s, $page says $limit"
}
page=$1
eval "$2"
[ -z "$late" ] || { printf "first_hour.sh: %s\n" "${late#; }" >&2; exit 1; }
' first_hour "$page" "$steps"
