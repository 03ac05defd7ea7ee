#!/usr/bin/env bash
# Language models from scratch, with vokens, without, and with what takes their place. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

model() { # SEED NAME DATA UPDATES FLAGS…: OUT/seedS/models/NAME, for transformers
    local seed=$1 name=$2 data=$3 updates=$4
    shift 4
    run "seed$seed/train-$name" fairseq-train "$OUT/bin/$data" --user-dir visual_grounding --task voken_lm \
        --arch voken_bert "${sizes[@]}" --criterion voken_classification --optimizer adam --adam-eps 1e-6 --weight-decay 0.01 \
        --clip-norm 1 --lr-scheduler polynomial_decay "${rates[@]}" --total-num-update "$updates" --max-update "$updates" \
        --no-epoch-checkpoints --validate-interval 1000 --save-dir "$OUT/seed$seed/checkpoints/$name" --seed "$seed" \
        "${device[@]}" --log-format simple "$@"
    run "seed$seed/export-$name" visual-grounding export --to transformers --tokenizer "$OUT/vokens/matching/train" \
        --checkpoint "$OUT/seed$seed/checkpoints/$name/checkpoint_last.pt" --out "$OUT/seed$seed/models/$name"
}
vokens() { printf '%s\n' --vokens "$OUT/vokens/$1"; }

vision_language() { # SEED: BERT, trained on with photos (Table 3), and its text alone again
    run "seed$1/train-vision" fairseq-train "$OUT/bin/vision" --user-dir visual_grounding \
        --task vision_language_pretraining --arch vlp_bert "${vision_sizes[@]}" --criterion masked_lm_with_paired_image \
        --image-features "$OUT/regions" --image-ids "$OUT/ids" --optimizer adam --lr 0.0002 --lr-scheduler inverse_sqrt \
        --warmup-updates 100 --batch-size 64 --max-epoch "$VISION_EPOCHS" --no-epoch-checkpoints \
        --save-dir "$OUT/seed$1/checkpoints/vision" --seed "$1" "${device[@]}" --log-format simple
    run "seed$1/export-vision" visual-grounding export --to transformers --tokenizer "$BERT" \
        --checkpoint "$OUT/seed$1/checkpoints/vision/checkpoint_last.pt" --out "$OUT/seed$1/models/bert-vision"
}

for seed in $(seq "$SEEDS"); do
    step "seed $seed: language models"
    later model "$seed" mlm-more all "$MORE_UPDATES"
    later model "$seed" voken all "$UPDATES" $(vokens matching)
    later model "$seed" shuffled all "$UPDATES" $(vokens matching) --voken-labels shuffled
    if [ -n "$FULL" ]; then
        later model "$seed" mlm all "$UPDATES"
        later model "$seed" voken-only all "$UPDATES" $(vokens matching) --mlm-weight 0
        later model "$seed" random all "$UPDATES" $(vokens matching) --voken-labels random
        later model "$seed" tokens all "$UPDATES" --voken-labels tokens
        later model "$seed" sentence-label all "$UPDATES" $(vokens sentence) --voken-sentence-label cls
        later model "$seed" propagated all "$UPDATES" $(vokens sentence)
        later model "$seed" term-frequency all "$UPDATES" $(vokens term-frequency)
        later model "$seed" deep-head all "$UPDATES" $(vokens matching) --voken-head deep
        later model "$seed" captions captions "$((UPDATES / 5))"
        later model "$seed" wiki wiki "$((UPDATES / 5))"
        later vision_language "$seed"
    fi
done
finish
