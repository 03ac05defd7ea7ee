# What run.sh and streams.sh share; read by `source`, after `out`, the folder that is made anew, is set.
device=${DEVICE:-cpu}
case $device in
    cpu) on_device=(--cpu) ;; # fairseq's commands take the GPU unless they are told not to
    cuda) on_device=() ;;
    *) echo "DEVICE should be cpu or cuda, but is $device" >&2; exit 2 ;;
esac
rm -rf "$out"
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
