#!/usr/bin/env bash
# Grounded language models, a strategy each, and each of them on the tasks. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

# strategy NAME: what it adds to fairseq-train, one a line.
#   none             passages alone, always the placeholder
#   none-captions    passages and captions, mixed 1:1, without their photos: the same data as i2t
#   i2t, t2i, both   the same with their photos: hidden words, hidden regions, the one or the other; i2t-shuffled: others'
#   regions-R        as i2t with the R regions of each photo that a detector is surest of
#   METHOD-N         passages with the N best images that are found for what each mask leaves of them
strategy() {
    local words captions=(--caption-data "$OUT/bin/captions" --image-features "$OUT/photos" --image-ids "$OUT/ids/paired")
    case $1 in
    none) ;;
    none-captions) printf '%s\n' "${captions[@]}" --image-order blank ;;
    i2t) printf '%s\n' "${captions[@]}" ;;
    i2t-shuffled) printf '%s\n' "${captions[@]}" --image-order shuffled ;;
    t2i) printf '%s\n' "${captions[@]}" --grounding-objective jmrm ;;
    regions-*) printf '%s\n' --caption-data "$OUT/bin/captions" --image-features "$OUT/detected/${1#*-}" --image-ids "$OUT/ids/paired" ;;
    both) printf '%s\n' "${captions[@]}" --grounding-objective both ;;
    *)
        mapfile -t words < <(finder "${1%-*}")
        printf '%s\n' --image-features "$OUT/photos" --image-finder "$(printf '%q ' "${words[@]}" -n "${1#*-}")" --finder-tokenizer "$BERT"
        ;;
    esac
}
pretrain() { # SEED STRATEGY: OUT/seedS/pretrained/STRATEGY
    local more
    mapfile -t more < <(strategy "$2")
    # Epochs between validations: --max-update asks for one at the end, and others would take a fifth of the time.
    run "seed$1/pretrain-$2" fairseq-train "$OUT/bin/wiki" --user-dir visual_grounding --task grounded_lm \
        --arch grounded_albert --grounded-text-encoder "$BERT" "${sizes[@]}" --visual-standardise --criterion grounded_masked_lm \
        --max-pieces "$PIECES" --batch-size "$BATCH" --optimizer adam --clip-norm 1 --lr-scheduler polynomial_decay "${rates[@]}" \
        --total-num-update "$UPDATES" --max-update "$UPDATES" --no-epoch-checkpoints --validate-interval 1000 --save-dir "$OUT/seed$1/pretrained/$2" \
        --seed "$1" "${device[@]}" --log-format simple "${more[@]}"
}
tune() { # SEED STRATEGY TASK: OUT/seedS/tuned/TASK/STRATEGY; bert is the encoder alone
    local model=(--arch grounded_albert --visual-pretrained "$OUT/seed$1/pretrained/$2/checkpoint_last.pt")
    if [ "$2" = bert ]; then model=(--arch visual_aware_bert --bert "$BERT"); fi
    case $2 in keyword-* | scene-* | object-*)
        model+=(--image-features "$OUT/photos" --image-ids "$OUT/ids/tasks/$3/${2%-*}" --images-per-sentence "$(least "${2#*-}" 16)") ;;
    esac
    # The last checkpoint counts: nothing is chosen on rows that are reported.
    run "seed$1/tune-$3-$2" fairseq-train "$OUT/tasks/$3" --user-dir visual_grounding --task grounded_sentence_prediction \
        --criterion grounded_sentence_prediction --max-pieces 64 "${model[@]}" --optimizer adam --clip-norm 1 \
        --lr-scheduler polynomial_decay "${task_rates[@]}" --total-num-update "$TASK_UPDATES" --max-update "$TASK_UPDATES" \
        --no-epoch-checkpoints --save-dir "$OUT/seed$1/tuned/$3/$2" --seed "$1" "${device[@]}" --log-format simple
}
least() { echo $(($1 < $2 ? $1 : $2)); }

pretrain_and_tune() { # SEED STRATEGY
    local task
    pretrain "$@"
    case " $TUNED " in *" $2 "*) for task in $TASKS; do tune "$@" "$task"; done ;; esac
}

for seed in $(seq "$SEEDS"); do
    step "seed $seed: pre-training, $UPDATES updates each: $STRATEGIES; tasks: $TASKS"
    for name in $STRATEGIES; do later pretrain_and_tune "$seed" "$name"; done
    for task in $TASKS; do later tune "$seed" bert "$task"; done
done
finish
