#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the site from README.md, docs/, the examples, the results and the comments of the public headers: pages with a
# search, which need no other server. A link that leads nowhere is an error.
#
#   scripts/site.sh [--out=FOLDER] [--build=FOLDER] [--serve[=PORT]] [--no-install]
#
# --out=        where the pages go; default build/site/site
# --build=      such as build/dev: runs the examples that were built there, and shows what they print
# --serve       shows them at http://127.0.0.1:8000, or that port, until it is interrupted; the search needs a server
# --no-install  only say what is missing
# MkDocs with its theme comes from PyPI into build/site/venv; once it is there, no network is needed.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

out=build/site/site
port=
built=()
while [ $# -gt 0 ]; do
  case "$1" in
    --out=*) out=${1#*=} ;;
    --build=*) built=("--build=${1#*=}") ;;
    --serve) port=8000 ;;
    --serve=*) port=${1#*=} ;;
    --no-install) may_install=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/site.sh --help" ;;
  esac
  shift
done

want_packages python3 python3-venv
work=$root/build/site
python=$work/venv/bin/python
wanted=scripts/site/requirements.txt
if ! cmp -s "$wanted" "$work/installed.txt"; then
  [ "$may_install" = yes ] || die "missing in build/site/venv: $(paste -sd ' ' "$wanted"); without --no-install they
       come from PyPI"
  present python3-venv || die "missing: python3-venv (name of a Debian package)"
  say "getting MkDocs"
  [ -x "$python" ] || python3 -m venv "$work/venv"
  "$python" -m pip install --quiet --disable-pip-version-check --requirement "$wanted"
  cp "$wanted" "$work/installed.txt"
fi

say "building"
mkdir -p "$out"
"$python" -B scripts/site/assemble.py "--root=$root" "--out=$work" ${built[@]+"${built[@]}"}
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --config-file "$work/mkdocs.yml" --site-dir "$(cd "$out" && pwd)"
say "$out/index.html"
if [ -n "$port" ]; then
  say "http://127.0.0.1:$port"
  exec "$python" -m http.server --bind 127.0.0.1 --directory "$out" "$port"
fi
