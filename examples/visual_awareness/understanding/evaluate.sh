#!/usr/bin/env bash
# Scores of every model, with right, wrong and no images; a table over seeds. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

score() { # SEED TASK SPLIT NAME FLAGS…: OUT/seedS/scores/NAME.TASK.SPLIT, of the model that looks at images
    local seed=$1 task=$2 split=$3 name=$4
    shift 4
    run "seed$seed/score-$task-$split-$name" visual-grounding evaluate predictions --device "$DEVICE" --split "$split" \
        --checkpoint "$OUT/seed$seed/$task/retrieved/checkpoint_last.pt" "$@" --out "$OUT/seed$seed/scores/$name.$task.$split"
}
for seed in $(seq "$SEEDS"); do
    step "seed $seed: scores"
    for place in nli:valid ner:valid nli:test; do
        task=${place%:*} split=${place#*:}
        later score "$seed" "$task" "$split" text-only --twin-checkpoint "$OUT/seed$seed/$task/text-only/checkpoint_last.pt"
        for order in shuffled blank; do later score "$seed" "$task" "$split" $order --image-order congruent $order; done
        if [ -n "$FULL" ]; then
            later score "$seed" "$task" "$split" trained-on-shuffled --twin-checkpoint "$OUT/seed$seed/$task/shuffled/checkpoint_last.pt"
        fi
    done
    finish
done
step "a table over seeds: OUT/table, and of what seed 1 alone has: OUT/table-seed1"
report_seeds
