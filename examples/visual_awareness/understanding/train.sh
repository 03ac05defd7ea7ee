#!/usr/bin/env bash
# BERT on both tasks, alone and with the images that were found. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

tune() { # SEED TASK NAME FLAGS…: OUT/seedS/TASK/NAME
    local seed=$1 task=$2 name=$3
    shift 3
    case $task in
    nli)
        run "seed$seed/nli-$name" fairseq-train "$OUT/tasks/nli" --user-dir visual_grounding --task grounded_sentence_prediction \
            --arch visual_aware_bert --bert "$BERT" --criterion grounded_sentence_prediction --optimizer adam --clip-norm 1 \
            --lr-scheduler polynomial_decay "${tuning[@]}" --warmup-updates "$((NLI_UPDATES / 10))" \
            --total-num-update "$NLI_UPDATES" --max-update "$NLI_UPDATES" --no-epoch-checkpoints \
            --save-dir "$OUT/seed$seed/nli/$name" --seed "$seed" "${device[@]}" --log-format simple "$@"
        ;;
    ner)
        run "seed$seed/ner-$name" fairseq-train "$OUT/tasks/ner" --user-dir visual_grounding --task grounded_tagging \
            --arch visual_aware_bert --bert "$BERT" --criterion grounded_tagging --optimizer adam --clip-norm 1 \
            --lr-scheduler polynomial_decay "${tuning[@]}" --warmup-updates "$((NER_UPDATES / 10))" \
            --total-num-update "$NER_UPDATES" --max-update "$NER_UPDATES" --no-epoch-checkpoints \
            --save-dir "$OUT/seed$seed/ner/$name" --seed "$seed" "${device[@]}" --log-format simple "$@"
        ;;
    esac
}
for seed in $(seq "$SEEDS"); do
    step "seed $seed: text only and with retrieved images"
    for task in nli ner; do
        images=(--image-features "$OUT/features/pooled.collection" --image-ids "$OUT/ids/$task")
        later tune "$seed" $task text-only
        later tune "$seed" $task retrieved "${images[@]}"
        if [ -n "$FULL" ]; then later tune "$seed" $task shuffled "${images[@]}" --image-order shuffled; fi
    done
    finish
done
