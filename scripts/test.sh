#!/usr/bin/env bash
# Sets everything up and runs the tests: first the fast stage, then the slow one. `scripts/test.sh fast` stops after it,
# `scripts/test.sh quick` takes less than a minute: style, layers, and what most changes touch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stage=${1:-all}
# Limits are twice what a stage takes on an Intel Xeon's two cores: an AMD EPYC without AVX-512 takes nearly that.
case $stage in quick | fast | slow | all) ;; *) echo "usage: $0 [quick|fast|slow|all]" >&2; exit 2 ;; esac
bash scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1

if [ "$stage" = quick ]; then
    ruff check .
    lint-imports
    exec pytest -q -n 2 -m "not slow" tests/modules tests/models tests/criterions tests/data tests/text
fi
if [ "$stage" != slow ]; then
    ruff check .
    ruff format --check .
    mypy
    lint-imports
    timeout 1500 pytest -n 2 -m "not slow" --durations=8
fi
if [ "$stage" != fast ]; then
    # A file's tests share what they train; files stay in the order of tests/conftest.py, the longest first.
    timeout 3600 pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow --durations=8
fi
