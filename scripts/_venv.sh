#!/usr/bin/env bash
# The environment of the checkout: .venv, with tarkit from this checkout and the requirements of a group of
# pyproject.toml. $TARKIT_VENV names another directory for it.
#
#   . scripts/_venv.sh; venv tarkit GROUP...    create it, and put it first in PATH
#   scripts/_venv.sh COMMAND...                 run a command in it
#
# It is created again if its Python does not run, is older than 3.11 or is not the one that $PYTHON names. pip runs only
# if something has changed since the last run, or the compiled accelerator is gone or older than its source.

set -euo pipefail

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=${TARKIT_VENV:-$ROOT/.venv}

# say WORDS: print the next step to stderr.
say() {
    printf '\n== %s\n' "$*" >&2
}

# fits PYTHON: whether tarkit runs on this Python, and it has venv and ensurepip.
fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null </dev/null
}

# pythons NAME...: print the paths of all Pythons with these names, such as python3.12, in PATH and then in pyenv.
pythons() {
    type -aP "$@" || true
    local name
    for name in "$@"; do
        compgen -G "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/*/bin/$name" || true
    done
}

# find_python [NAME...]: print the path of $PYTHON, or else of the first that fits, of those names if any are given.
find_python() {
    local each
    if [[ $# -eq 0 && -n ${PYTHON:-} ]]; then
        fits "$PYTHON" && { command -v -- "$PYTHON"; return; }
        printf '%s\n' "PYTHON=$PYTHON is no Python of at least 3.11 with venv and ensurepip" >&2
        return 1
    fi
    [[ $# -gt 0 ]] || set -- python3 python3.{14,13,12,11} python
    while read -r each; do
        if [[ $each != "$VENV"/* ]] && fits "$each"; then
            printf '%s\n' "$each"
            return
        fi
    done < <(pythons "$@")
    printf '%s\n' "no Python of at least 3.11 with venv and ensurepip (Debian: apt install python3-venv)" >&2
    return 1
}

# version PYTHON: print its version, such as 3.12; nothing if it does not run.
version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null || true
}

# usable: whether .venv runs, has pip, and has the requested Python.
usable() {
    local python=$VENV/bin/python
    "$python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null </dev/null || return 1
    [[ -z ${PYTHON:-} || $(version "$python") == "$(version "$PYTHON")" ]]
}

# wanted GROUP...: print the requirements of groups, or extras, a line each; old versions of pip do not support groups.
wanted() {
    "$VENV/bin/python" - "$ROOT/pyproject.toml" "$@" <<'PYTHON'
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    read = tomllib.load(file)
groups = {**read["project"]["optional-dependencies"], **read["dependency-groups"]}
for name in sys.argv[2:]:
    print(*groups[name], sep="\n")
PYTHON
}

# oldest PYTHON: print the oldest versions that pyproject.toml allows of dependencies and extras, but of torch, which is large:
# constraints for pip ($PIP_CONSTRAINT).
oldest() {
    "$1" - "$ROOT/pyproject.toml" <<'PYTHON'
import re, sys, tomllib

with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
wanted = {each for name in extras if name != "torch" for each in extras[name]} | {*project["dependencies"]}
for each in sorted(wanted):
    if not each.startswith("tarkit["):
        print(re.sub(r">=([^,;]*)[^;]*", r"==\1", each, count=1))
PYTHON
}

# accelerator: whether the accelerator is compiled, and not older than its source.
accelerator() {
    [[ -e $ROOT/tarkit/tar/_fast.abi3.so && ! $ROOT/tarkit/tar/_fast.c -nt $ROOT/tarkit/tar/_fast.abi3.so ]]
}

# recipe GROUP: print what an installation depends on: the checkout, the requirements, and what is compiled.
recipe() {
    printf '%s\n' "$ROOT"
    cat -- "$ROOT/pyproject.toml"
    if [[ $1 == tarkit ]]; then
        cat -- "$ROOT/hatch_build.py" "$ROOT/tarkit/tar/_fast.c"
        # without a compiler, or with TARKIT_PURE=1, it was not compiled either: then nothing has changed
        if accelerator; then printf 'compiled\n'; else printf 'not compiled %s\n' "${TARKIT_PURE:-}"; fi
    fi
}

# venv tarkit GROUP...: see above. $limit: seconds that an installation may take.
venv() {
    local python requirements line stamp group
    if ! usable; then
        python=$(find_python)
        say "making ${VENV##*/} with Python $(version "$python")"
        rm -rf -- "$VENV"
        "$python" -m venv -- "$VENV"
    fi
    for group in "$@"; do
        stamp=$VENV/.has-$group
        if ! recipe "$group" | cmp -s - "$stamp"; then
            if [[ $group == tarkit ]]; then
                say "installing tarkit into ${VENV##*/}"
                accelerator || rm -f -- "$ROOT/tarkit/tar/_fast.abi3.so"
                requirements=(--editable "$ROOT")
            else
                say "installing what '$group' needs into ${VENV##*/}"
                requirements=()
                while read -r line; do requirements+=("$line"); done < <(wanted "$group")
            fi
            # modules are compiled when they are imported first: most never are
            ${limit:+timeout "$limit"} "$VENV/bin/python" -m pip install -qq --disable-pip-version-check --no-input \
                --no-compile "${requirements[@]}" >&2 || return
            recipe "$group" >"$stamp"
        fi
    done
    export VIRTUAL_ENV=$VENV PATH=$VENV/bin:$PATH
    unset PYTHONHOME
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    venv tarkit
    exec "$@"
fi
