# What the scripts of this folder share: choices with defaults, each an environment variable. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
here=examples/visual_awareness

DATA=${DATA:-${VISUAL_GROUNDING_DATA:-../shared/data}} # holds flickr8k/ and downstream/multi30k_masking/
OUT=${OUT:-$here/out}
LANGUAGE=${LANGUAGE:-de}       # translate from English into de or fr
SEED=${SEED:-1}
DEVICE=${DEVICE:-cpu}          # cpu, or cuda
FEATURES=${FEATURES:-given}    # given: those of the data folder; extract: BACKBONE with WEIGHTS on the photos there
BACKBONE=${BACKBONE:-resnet152}
WEIGHTS=${WEIGHTS:-}           # a state_dict file; without it torchvision downloads its own
RETRIEVERS=${RETRIEVERS:-bag minilm} # text encoders to train: sru, bag (both from scratch), minilm (pretrained, frozen)
SIZE=${SIZE:-small}            # small: two CPU cores; paper: the papers' sizes, for a GPU
LIMIT=${LIMIT:-}               # rows of each file to keep, to try the recipe

case $SIZE in
small)
    model=(--encoder-layers 3 --decoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0.3)
    optimiser=(--lr 0.004 --warmup-updates 500 --max-tokens 2048)
    EPOCHS=${EPOCHS:-9} MASKED_EPOCHS=${MASKED_EPOCHS:-28} MERGES=${MERGES:-4000}
    ;;
paper)
    model=(--encoder-layers 6 --decoder-layers 6 --encoder-embed-dim 512 --encoder-ffn-embed-dim 2048
        --encoder-attention-heads 8 --decoder-attention-heads 8 --dropout 0.1 --attention-dropout 0.1)
    optimiser=(--lr 0.0007 --warmup-updates 8000 --max-tokens 4096 --update-freq 4)
    EPOCHS=${EPOCHS:-100} MASKED_EPOCHS=${MASKED_EPOCHS:-300} MERGES=${MERGES:-10000}
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
device=()
if [ "$DEVICE" = cpu ]; then device=(--cpu); else device=(--fp16); fi

# run NAME COMMAND…: keeps what the command says in OUT/logs/NAME.log, and shows its end if it fails.
run() {
    local log="$OUT/logs/$1.log"
    shift
    mkdir -p "$OUT/logs"
    if ! "$@" >"$log" 2>&1; then
        tail -n 25 "$log" >&2
        echo "This failed; the whole log is in $log" >&2
        return 1
    fi
}
step() { printf '[%s] %s\n' "$(date +%T)" "$*"; }
