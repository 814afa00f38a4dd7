#!/usr/bin/env bash
# The environment of the checkout: .venv, with tarkit as it stands here and what a group of pyproject.toml asks for.
# $TARKIT_VENV names another folder for it.
#
#   . scripts/_venv.sh; venv tarkit GROUP...    make it, and put it first in PATH
#   scripts/_venv.sh COMMAND...                 run a command in it
#
# It is made anew when its Python does not run, is older than 3.11 or is not the one that $PYTHON names. pip runs only
# when something has changed since the last time.

set -euo pipefail

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=${TARKIT_VENV:-$ROOT/.venv}

# say WORDS: what comes next, on stderr.
say() {
    printf '\n== %s\n' "$*" >&2
}

# fits PYTHON: whether this is a Python that tarkit runs on, with venv and pip at hand.
fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null </dev/null
}

# pythons NAME...: the paths of all Pythons of these names, such as python3.12, in PATH and then those that pyenv has.
pythons() {
    type -aP "$@" || true
    local name
    for name in "$@"; do
        compgen -G "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/*/bin/$name" || true
    done
}

# find_python [NAME...]: the path of $PYTHON, or else of the first that fits, of those names if there are any.
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

# version PYTHON: its series, such as 3.12; nothing when it does not run.
version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null || true
}

# usable: whether .venv runs, has pip, and is of the Python that was asked for.
usable() {
    local python=$VENV/bin/python
    "$python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null </dev/null || return 1
    [[ -z ${PYTHON:-} || $(version "$python") == "$(version "$PYTHON")" ]]
}

# wanted GROUP...: the requirements of groups, a line each; what pip can do with groups depends on its age.
wanted() {
    "$VENV/bin/python" - "$ROOT/pyproject.toml" "$@" <<'PYTHON'
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    groups = tomllib.load(file)["dependency-groups"]
for name in sys.argv[2:]:
    print(*groups[name], sep="\n")
PYTHON
}

# venv tarkit GROUP...: see above.
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
        # what was installed, for what, and from where
        if ! { printf '%s\n' "$ROOT"; cat -- "$ROOT/pyproject.toml"; } | cmp -s - "$stamp"; then
            if [[ $group == tarkit ]]; then
                say "installing tarkit into ${VENV##*/}"
                requirements=(--editable "$ROOT")
            else
                say "installing what '$group' needs into ${VENV##*/}"
                requirements=()
                while read -r line; do requirements+=("$line"); done < <(wanted "$group")
            fi
            "$VENV/bin/python" -m pip install -qq --disable-pip-version-check --no-input "${requirements[@]}" >&2 || return
            { printf '%s\n' "$ROOT"; cat -- "$ROOT/pyproject.toml"; } >"$stamp"
        fi
    done
    export VIRTUAL_ENV=$VENV PATH=$VENV/bin:$PATH
    unset PYTHONHOME
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    venv tarkit
    exec "$@"
fi
