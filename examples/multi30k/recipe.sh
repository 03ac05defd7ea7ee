# What recipes are made of; read by `source`, after OUT is set.
#
#   run NAME COMMAND…     once: a rerun skips what was done, by the same command; what it says is in OUT/logs/NAME.log
#   later COMMAND…        beside the next ones, at most JOBS at a time (a command of the shell: run, or a function)
#   finish                waits for all of them
#   step TEXT             says what comes
#
# A command that was stopped is given again: fairseq-train goes on from its last checkpoint, visual-grounding's verbs
# from what they finished.
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
JOBS=${JOBS:-2}

step() { printf '[%s] %s\n' "$(date +%T)" "$*"; }

run() {
    local name=$1 said log done
    shift
    said=$(printf '%q ' "$@")
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

lanes=()
later() {
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do sleep 1; done
    "$@" &
    lanes+=($!)
}
finish() {
    local lane failed=0
    for lane in "${lanes[@]}"; do wait "$lane" || failed=1; done
    lanes=()
    if [ $failed = 1 ]; then
        echo "Not all of it was done; given again, the same command goes on." >&2
        exit 1
    fi
}
