#!/usr/bin/env bash
# Runs everything that needs a CUDA device, one part after another, and leaves one report: the machine, what passed, and
# the tables. A part that fails or hangs keeps none of the others from running; the report is written as it goes, so
# what was done is there when the machine is taken away.
#
#   scripts/gpu.sh                   the report is out/gpu-report.md, whole logs are in out/gpu-report/
#   scripts/gpu.sh REPORT            another place
#   scripts/gpu.sh --list            the parts, the seconds that each may take, and its command
#
#   PYTHON=python3.12       an interpreter that has torch and sees the device; its torch, and whatever else it has, stays
#   WHEELS=DIR              wheels of what it lacks, where no registry can be reached
#   MORE="faiss-gpu-cu12"   further packages to install; without a faiss only exact search is run
#   ENVIRONMENT=DIR         a virtual environment that has everything; nothing is set up
#   SECONDS_IN_ALL=1680     when to stop
#   PARTS=FILE              another list, as --list prints it
#
# Exits with 0 where every part passed, with 1 where one failed or had no time left.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

list() {
    [ -n "${ENVIRONMENT:-}" ] || printf '%s\t%s\t%s\n' set-up 240 "set_up"
    # The benchmarks come before the long ones: their tables are what only such a machine can give.
    cat <<'PARTS'
machine	30	nvidia-smi -L; python scripts/gpu_machine.py
tests	440	python -m pytest -m gpu -n 4 -q --durations=5
search	60	python benchmarks/search.py
nearest image	60	python benchmarks/nearest_image.py
training step	120	python benchmarks/training_step.py
modality loss	90	python benchmarks/modality_loss.py --steps 20
pre-training step	60	python benchmarks/pretraining_step.py --steps 20
vokenization	150	python benchmarks/vokenization.py --encoder base --times 10 $text
understanding step	60	python benchmarks/understanding_step.py --steps 20 --size 768 --layers 12
extraction	130	python benchmarks/extraction.py
detection	60	python benchmarks/detection.py
index and retrieve	180	python benchmarks/retrieval_slope.py --device cuda --images 200000 --sentences 20000
quickstart	420	DEVICE=cuda OUT="$logs/quickstart" bash examples/quickstart/run.sh
PARTS
}
if [ "${1:-}" = --list ]; then
    list
    exit
fi

report=${1:-out/gpu-report.md}
mkdir -p "$(dirname "$report")" || exit 1
report=$(cd "$(dirname "$report")" && pwd)/$(basename "$report")
export logs=${report%.md}
[ "$logs" != "$report" ] || logs=$report.logs
rm -rf "$logs" && mkdir -p "$logs" || exit 1
export environment=${ENVIRONMENT:-$PWD/.venv-gpu} PYTHON=${PYTHON:-python3} WHEELS=${WHEELS:-} MORE=${MORE:-}
export ENVIRONMENT=$environment PATH="$environment/bin:$PATH" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
limit_in_all=${SECONDS_IN_ALL:-1680}

set_up() {
    # Beside the interpreter's own packages, none of which may change: torch belongs to the machine's driver.
    local registry=() fairseq
    [ -z "$WHEELS" ] || registry=(--no-index --find-links "$WHEELS")
    "$PYTHON" -c 'import sys, torch; sys.exit(0 if sys.version_info[:2] == (3, 12) else "Python 3.12 is needed")' || return
    "$PYTHON" -m venv --clear "$environment" || return
    "$PYTHON" -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")' \
        >"$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/interpreter.pth" || return
    "$PYTHON" -m pip list --format=freeze --disable-pip-version-check --exclude-editable | grep -v '^pip==' \
        >"$logs/constraints.txt"
    pip() { "$environment/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
    fairseq=$(grep -o 'fairseq-fixed==[0-9.]*' pyproject.toml)
    pip install "${registry[@]}" --ignore-installed --no-deps "$fairseq" || return # its commands belong beside this python
    pip install "${registry[@]}" -c "$logs/constraints.txt" --no-build-isolation -e . \
        pytest pytest-xdist hypothesis $MORE # not the extra [dev], which has tools that nothing here runs
}
export -f set_up

# WikiText where it is at hand, else random text.
export text="--lines 8000"
wiki=${VISUAL_GROUNDING_DATA:-../shared/data}/downstream/wikitext103
[ ! -f "$wiki/valid.txt" ] || text="--text $wiki/valid.txt $wiki/test.txt"

names=() limits=() commands=() results=() seconds=()
while IFS=$'\t' read -r name limit command; do
    [ -n "$name" ] || continue
    names+=("$name") limits+=("$limit") commands+=("$command") results+=("not run") seconds+=("")
done < <(if [ -n "${PARTS:-}" ]; then cat "$PARTS"; else list; fi)

log_of() { echo "$logs/$(printf '%02d' $(($1 + 1)))-${names[$1]// /-}.log"; }

# Writes the whole report anew, beside itself first: it is never half of one.
write_report() {
    local part log
    {
        echo "# GPU report"
        echo
        echo "Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), begun $begun, written $(date -u '+%F %T') UTC."
        echo
        echo "| part | result | seconds |"
        echo "| --- | --- | --- |"
        for part in "${!names[@]}"; do echo "| ${names[$part]} | ${results[$part]} | ${seconds[$part]} |"; done
        for part in "${!names[@]}"; do
            log=$(log_of "$part")
            [ -f "$log" ] || continue
            printf '\n## %s: %s\n\n`%s`\n\n' "${names[$part]}" "${results[$part]}" "${commands[$part]}"
            [ "$(wc -l <"$log")" -le 80 ] || printf 'The last 80 of %s lines; all are in %s.\n\n' "$(wc -l <"$log")" "$log"
            echo '```'
            tail -n 80 "$log" | cut -c 1-400 | sed 's/```/` ` `/g'
            echo '```'
        done
    } >"$report.tmp"
    mv -f "$report.tmp" "$report"
}

current=-1 child=
cut_off() {
    [ -z "$child" ] || kill -TERM "$child" 2>/dev/null # `timeout` hands it on to the part's processes
    [ "$current" -lt 0 ] || results[current]="cut off after $((SECONDS - part_began)) s"
    write_report
    exit 1
}
trap cut_off TERM INT HUP

begun="$(date -u '+%F %T') UTC"
SECONDS=0
failed=0
for part in "${!names[@]}"; do
    left=$((limit_in_all - SECONDS))
    if [ "$left" -le 0 ]; then
        results[part]="no time left"
        failed=1
        continue
    fi
    allowed=$((limits[part] < left ? limits[part] : left))
    current=$part part_began=$SECONDS results[part]="running"
    write_report
    # In the background, so that a signal is answered at once; in a group of its own, so that nothing outlives it.
    # A benchmark that knows how long it may take measures fewer pairs, and says so, before it is stopped.
    BENCHMARK_LIMIT=$((allowed * 7 / 10)) timeout --kill-after=10 "$allowed" bash -c "${commands[$part]}" >"$(log_of "$part")" 2>&1 </dev/null &
    child=$!
    wait "$child"
    status=$?
    child=
    seconds[part]=$((SECONDS - part_began))
    case $status in
        0) results[part]="passed" ;;
        124 | 137) results[part]="stopped after $allowed s" failed=1 ;;
        *) results[part]="failed with status $status" failed=1 ;;
    esac
    current=-1
    write_report
    echo "${names[$part]}: ${results[$part]} (${seconds[$part]} s)"
done
write_report
echo "$report"
exit "$failed"
