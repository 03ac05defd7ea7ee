# What the scripts of this folder share: the encoder, sizes of trainings, strategies and tasks. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/grounding_strategies
source examples/steps.sh # DATA, OUT, SEEDS, FULL, DEVICE, SIZE, LIMIT, JOBS
find_bert

TASKS=${TASKS:-sick rte}
STRATEGIES=${STRATEGIES:-none none-captions i2t scene-16} # pre-trained; see train.sh
TUNED=${TUNED:-none i2t scene-16}                          # of these, tuned on tasks, beside the encoder alone
METHODS=scene                                             # how images are found for text without
COUNTS=16                                                 # how many
if [ -n "$FULL" ]; then
    TASKS="sick rte joci vua vuan pdtb"
    STRATEGIES="none none-captions i2t t2i both i2t-shuffled regions-1 regions-4 regions-8 regions-16 keyword-1 keyword-4 keyword-8 keyword-16 keyword-24 scene-1 scene-4 scene-8 scene-16 scene-24 object-1 object-4 object-8 object-16 object-24"
    TUNED="none i2t t2i both keyword-16 scene-16 object-16"
    METHODS="keyword scene object" COUNTS="1 4 8 16 24"
fi
case $SIZE in
small)
    UPDATES=${UPDATES:-600} TASK_UPDATES=${TASK_UPDATES:-280}
    rates=(--lr 0.0003 --warmup-updates $((UPDATES / 10)) --batch-size 32)
    task_rates=(--lr 0.0001 --warmup-updates $((TASK_UPDATES / 10)) --batch-size 32)
    ;;
paper)
    UPDATES=${UPDATES:-200000} TASK_UPDATES=${TASK_UPDATES:-2000}
    rates=(--lr 0.0001 --warmup-updates 10000 --batch-size 32)
    task_rates=(--lr 0.0001 --warmup-updates 200 --batch-size 32)
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
