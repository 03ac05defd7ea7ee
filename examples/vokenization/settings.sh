# What the scripts of this folder share: BERT, sizes of models and trainings. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/vokenization
if grep -q amx_bf16 /proc/cpuinfo 2>/dev/null; then MATMUL=${MATMUL:-bfloat16}; fi # there float32 takes a third longer
source examples/steps.sh # DATA, OUT, SEEDS, FULL, DEVICE, SIZE, LIMIT, JOBS
find_bert

# Rows of the README's table, and tasks; give some of them to have those alone: ROWS="mlm-more random" TASKS=sst2.
every_row="tokens voken shuffled random voken-only sentence-label propagated term-frequency deep-head mlm-more mlm bert-vision bert bert-noise captions wiki none"
every_task="sst2 qnli qqp mnli codah xquad rte mrpc stsb"
# Under --full all tasks are for the rows of the paper's Table 2; those of its Tables 3 to 6 have the four tasks there.
fewer=${TASKS:-sst2 qnli qqp mnli}
if [ -n "$FULL" ]; then ROWS=${ROWS:-$every_row} TASKS=${TASKS:-$every_task}; fi
# What takes longest first, so that no core waits for it at the end.
ROWS=${ROWS:-voken shuffled mlm-more} TASKS=${TASKS:-mnli qqp sst2}
tasks_of() { # ROW: its tasks
    if [ -z "$FULL" ]; then echo "$TASKS"; return 0; fi
    case $1 in mlm-more | voken) echo "$TASKS" ;; *) echo "$fewer" ;; esac
}
check_among ROWS "$ROWS" "$every_row"
check_among TASKS "$TASKS" "$every_task"
asked() { # ROW…: whether one of them is to be there
    local row
    for row; do case " $ROWS " in *" $row "*) return 0 ;; esac; done
    return 1
}
# What these rows are made like.
if asked bert-noise && ! asked bert-vision; then ROWS="bert-vision $ROWS"; fi
if asked none && ! asked mlm-more; then ROWS="mlm-more $ROWS"; fi
TASK_EPOCHS=${TASK_EPOCHS:-3}
case $SIZE in
small)
    MATCH_EPOCHS=${MATCH_EPOCHS:-3} UPDATES=${UPDATES:-3000} VISION_EPOCHS=${VISION_EPOCHS:-2}
    # Small, as many updates are worth more than width here; without dropout, as the text is read about once.
    sizes=(--bert-layers 2 --bert-size 128 --bert-heads 2 --bert-ffn-size 512)
    WARMUP=$((UPDATES / 10))
    rates=(--lr 0.001 --batch-size 8 --bert-dropout 0)
    vision_sizes=(--bert "$BERT")
    ;;
paper)
    MATCH_EPOCHS=${MATCH_EPOCHS:-20} UPDATES=${UPDATES:-160000} VISION_EPOCHS=${VISION_EPOCHS:-20}
    sizes=(--bert-layers 6 --bert-size 512 --bert-heads 8 --bert-ffn-size 2048)
    WARMUP=10000
    rates=(--lr 0.0002 --batch-size 256)
    vision_sizes=(--bert "$BERT")
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
MORE_UPDATES=$((UPDATES + UPDATES / 10)) # the paper's: what voken classification adds in computation there

finetune() { # SEED ROW: lanes that make OUT/seedS/scores/ROW/TASK.json of each of its tasks
    local model=("$OUT/seed$1/models/$2") task
    case $2 in
    none) model=("$OUT/seed$1/models/mlm-more" --random) ;; # of its sizes
    bert) model=("$BERT") ;;
    bert-noise) model=("$BERT" --noise-like "$OUT/seed$1/models/bert-vision") ;;
    esac
    for task in $(tasks_of "$2"); do
        later run "seed$1/finetune-$2-$task" python $here/finetune.py --model "${model[@]}" --task "$task" --data "$OUT/tasks/$task" \
            --seed "$1" --epochs "$TASK_EPOCHS" --out "$OUT/seed$1/scores/$2/$task.json"
    done
}

corpora() { # lanes that need no language model: OUT/floors.json, OUT/stats
    local texts=() task
    if asked voken; then
        later run floors python $here/floors.py --matcher "$OUT/matchers/tokens" --control "$OUT/matchers/shuffled" --photos "$OUT/photos" \
            --captions "$OUT/captions/valid.tsv" --train "$OUT/vokens/matching/train" --valid "$OUT/vokens/matching/valid" \
            --out "$OUT/floors.json"
    fi
    for task in $every_task; do texts+=("$task=$OUT/tasks/$task/sentences.txt"); done
    later run stats visual-grounding stats --text "captions=$OUT/text/captions.txt" "wiki=$OUT/text/wiki.txt" \
        "all=$OUT/text/train.txt" "${texts[@]}" --tokenizer "$BERT" --by-line captions --reference wiki --captions captions \
        --out "$OUT/stats"
}
