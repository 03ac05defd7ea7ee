#!/usr/bin/env bash
# Makes .venv with tested versions of everything. Costs minutes once, seconds after. PYTHON chooses the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12)])' 2>/dev/null; }

find_python() {
    # 3.12 first: fairseq has a ready-made wheel for it; on 3.11 it is compiled (a C++ compiler, about five minutes).
    local candidate
    for candidate in ${PYTHON:-} python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python python3 python3.11 \
        "$HOME"/.pyenv/versions/3.11*/bin/python; do
        if usable "$candidate"; then echo "$candidate"; return; fi
    done
    echo "No Python 3.12 or 3.11 (with venv) was found. Install one, or name it: PYTHON=/path/to/python3.12 $0" >&2
    return 2
}

stamp=.venv/.setup-stamp
wanted=$(cat pyproject.toml scripts/constraints.txt scripts/setup.sh | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then exit 0; fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    "$python" -m venv --clear .venv
fi
echo "Setting up .venv with $(.venv/bin/python --version) (a few minutes, once) …"
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
    # Its build needs torch at build time; in pip's build isolation it would fetch a second torch of several GB.
    grep -v '^torchaudio==' scripts/constraints.txt > .venv/build-constraints.txt
    pip install -c .venv/build-constraints.txt torch numpy cython setuptools wheel ninja
    pip install -c scripts/constraints.txt --no-build-isolation fairseq-fixed==0.12.3.1
fi
pip install -c scripts/constraints.txt -e '.[cpu,dev]'
echo "$wanted" > "$stamp"
