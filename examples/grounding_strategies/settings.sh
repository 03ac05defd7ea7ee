# What the scripts of this folder share: the encoder, sizes of trainings, strategies and tasks. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/grounding_strategies
if grep -q amx_bf16 /proc/cpuinfo 2>/dev/null; then MATMUL=${MATMUL:-bfloat16}; fi # there float32 takes a third longer
source examples/steps.sh # DATA, OUT, SEEDS, FULL, DEVICE, SIZE, LIMIT, JOBS
find_bert

# Strategies that are pre-trained (train.sh says what each is), and of these those that are tuned on tasks, beside the
# encoder alone. Give some of them to have those alone: STRATEGIES="none t2i" TASKS=vua.
every_strategy="none none-captions i2t t2i both i2t-shuffled regions-1 regions-4 regions-8 regions-16"
for method in keyword scene object; do for count in 1 4 8 16 24; do every_strategy+=" $method-$count"; done; done
every_task="sick rte joci vua vuan pdtb"
if [ -n "$FULL" ]; then STRATEGIES=${STRATEGIES:-$every_strategy} TASKS=${TASKS:-$every_task}; fi
# What takes longest first, so that no lane waits for it at the end.
STRATEGIES=${STRATEGIES:-scene-16 none i2t none-captions} TASKS=${TASKS:-sick joci}
check_among STRATEGIES "$STRATEGIES" "$every_strategy"
check_among TASKS "$TASKS" "$every_task"
asked() { case " $STRATEGIES " in *" $1"*) return 0 ;; *) return 1 ;; esac } # a strategy and a space, or how one begins
if [ -z "${TUNED:-}" ]; then
    TUNED=
    for name in none i2t t2i both keyword-16 scene-16 object-16; do if asked "$name "; then TUNED+=" $name"; fi; done
fi
# A task's sentences have 16 images each; of object-1 and object-4 they would be other ones, of METHOD-24 too few.
check_among TUNED "$TUNED" "$(printf '%s\n' $STRATEGIES | grep -vxE 'object-[14]|.*-24' | paste -sd ' ')"
METHODS=scene # how images are found for text without; this one's tables have the masks that all are asked by
for method in keyword object; do if asked "$method-"; then METHODS+=" $method"; fi; done
finder() { # METHOD: it and its flags, one a line
    local words=(--image-features "$OUT/photos")
    case $1 in
    keyword) words+=(--captions "$OUT/captions.tsv") ;;
    scene) words+=(--captions "$OUT/captions.tsv" --word-vectors "$OUT/vectors.txt") ;;
    object) words+=(--nouns "$OUT/nouns.tsv" --word-vectors "$OUT/vectors.txt" --tagger none ${LIMIT:+--images-per-noun 1}) ;;
    esac
    printf '%s\n' "$1" "${words[@]}"
}
case $SIZE in
small)
    UPDATES=${UPDATES:-2400} TASK_UPDATES=${TASK_UPDATES:-240}
    PIECES=32 BATCH=24
    sizes=(--cross-modal-layers 2)
    rates=(--lr 0.0005 --warmup-updates $((UPDATES / 10)))
    task_rates=(--lr 0.0001 --warmup-updates $((TASK_UPDATES / 10)) --batch-size 16)
    ;;
paper)
    UPDATES=${UPDATES:-200000} TASK_UPDATES=${TASK_UPDATES:-2000}
    PIECES=64 BATCH=32 # the paper's
    sizes=()
    rates=(--lr 0.0001 --warmup-updates 10000)
    task_rates=(--lr 0.0001 --warmup-updates 200 --batch-size 32)
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
