# What run.sh and streams.sh share; read by `source`, after `out`, the folder that is made anew, is set.
device=${DEVICE:-cpu}
case $device in
    cpu) on_device=(--cpu) ;; # fairseq's commands take the GPU unless they are told not to
    cuda) on_device=() ;;
    *) echo "DEVICE should be cpu or cuda, but is $device" >&2; exit 2 ;;
esac
if [ -n "$(ls -A "$out" 2>/dev/null)" ] && [ ! -e "$out/.quickstart" ] && [ ! -d "$out/translations" ]; then
    echo "OUT should be a new folder, or one that this made before, as all in it is deleted; but $out holds other things." >&2
    exit 2
fi
mkdir -p "$out"
exec {lock}>>"$out/.quickstart" # a file's: reports lock the folder that they are written into
if command -v flock >/dev/null && ! flock -w 3 "$lock"; then # what this starts holds it, too
    echo "$out is in use by another run, or something that it started. Wait for it, or choose another OUT." >&2
    exit 2
fi
find "$out/" -mindepth 1 ! -name .quickstart -delete # with its slash, as it may be a link
mkdir -p "$out/logs" "$out/translations"
started=$SECONDS

# run NAME COMMAND…: keeps what the command says in a log, and shows its end if it fails.
run() {
    local log="$out/logs/$1.log"
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -n 25 "$log" >&2
        echo "This failed; the whole log is in $log" >&2
        return 1
    fi
}
step() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }
