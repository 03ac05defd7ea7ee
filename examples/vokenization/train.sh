#!/usr/bin/env bash
# Language models from scratch, with vokens, without, and with what takes their place. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

model() { # SEED NAME DATA UPDATES FLAGS…: OUT/seedS/models/NAME, for transformers
    local seed=$1 name=$2 data=$3 updates=$4 warmup=$WARMUP
    shift 4
    if [ "$updates" -lt "$UPDATES" ]; then warmup=$((WARMUP * updates / UPDATES)); fi # of Table 4's
    run "seed$seed/train-$name" fairseq-train "$OUT/bin/$data" --user-dir visual_grounding --task voken_lm \
        --arch voken_bert "${sizes[@]}" --criterion voken_classification --optimizer adam --adam-eps 1e-6 --weight-decay 0.01 \
        --clip-norm 1 --lr-scheduler polynomial_decay "${rates[@]}" --warmup-updates "$warmup" --total-num-update "$updates" --max-update "$updates" \
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

row() { # SEED ROW: the language model of a row of the README's table
    case $2 in
    mlm-more) model "$1" mlm-more all "$MORE_UPDATES" ;;
    voken) model "$1" voken all "$UPDATES" $(vokens matching) ;;
    shuffled) model "$1" shuffled all "$UPDATES" $(vokens matching) --voken-labels shuffled ;;
    mlm) model "$1" mlm all "$UPDATES" ;;
    voken-only) model "$1" voken-only all "$UPDATES" $(vokens matching) --mlm-weight 0 ;;
    random) model "$1" random all "$UPDATES" $(vokens matching) --voken-labels random ;;
    tokens) model "$1" tokens all "$UPDATES" --voken-labels tokens ;;
    sentence-label) model "$1" sentence-label all "$UPDATES" $(vokens sentence) --voken-sentence-label cls ;;
    propagated) model "$1" propagated all "$UPDATES" $(vokens sentence) ;;
    term-frequency) model "$1" term-frequency all "$UPDATES" $(vokens term-frequency) ;;
    deep-head) model "$1" deep-head all "$UPDATES" $(vokens matching) --voken-head deep ;;
    captions | wiki) model "$1" "$2" "$2" "$((UPDATES / 5))" ;;
    bert-vision) vision_language "$1" ;;
    none | bert | bert-noise) ;; # random weights, those of BERT, and these with noise
    esac
}

learned() { # SEED ROW: waits for what the row is fine-tuned from; whether it is there
    local from=$2
    case $2 in none) from=mlm-more ;; bert) return 0 ;; bert-noise) from=bert-vision ;; esac
    wait "${lane[$from]}" || true # how it ended says the step
    [ -f "$OUT/done/seed$1/export-${from/bert-/}" ]
}

# Where a core is free while the last language models learn, it begins with what evaluate.sh would do.
declare -A lane
for seed in $(seq "$SEEDS"); do
    step "seed $seed: language models: $ROWS; fine-tuning on $TASKS"
    for name in $ROWS; do
        later row "$seed" "$name"
        lane[$name]=$!
    done
    if [ "$seed" = 1 ]; then corpora; fi
    for name in $ROWS; do
        if ! learned "$seed" "$name"; then continue; fi
        finetune "$seed" "$name"
    done
done
finish
