#!/usr/bin/env bash
# Translations of every model with right, wrong and no regions; BLEU, tests over seeds; the probes. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

visual_of() { # KIND NAME ORDER
    local store=regions
    if [[ $2 == grid* ]]; then store=cells; fi
    if [[ $2 == *mmt* ]]; then
        printf '%s\n' --image-features "$OUT/$store" --image-ids "$OUT/ids/$1" --image-order "$3"
    fi
}

trained_on() { [[ $1 = plain || $2 != synthetic-* ]]; } # KIND NAME: machine translations are of whole captions

others=()
if [ -n "$FULL" ]; then
    others=(tlm-mmt vtlm-nmt vtlm-mmt-random unmasked-mmt people-mmt grid-mmt scratch-nmt scratch-mmt synthetic-nmt synthetic-mmt)
fi
evaluate_seeds vtlm-mmt tlm-nmt "${others[@]}"

probes_of() { # SEED
    local checkpoints=$OUT/seed$1/translators/plain
    run "seed$1/probe-last-word" visual-grounding probe last-word \
        --checkpoint "$OUT/seed$1/pretrained/vtlm/checkpoint_best.pt" \
        --twin-checkpoint "$OUT/seed$1/pretrained/tlm/checkpoint_best.pt" --split valid \
        --image-order congruent shuffled --out "$OUT/seed$1/probes/last-word"
    run "seed$1/probe-entity-masking" visual-grounding probe entity-masking \
        --checkpoint "$checkpoints/vtlm-mmt/checkpoint_best.pt" --twin-checkpoint "$checkpoints/tlm-nmt/checkpoint_best.pt" \
        --split valid --positions "$OUT/raw/plain/valid.nouns" --text "$OUT/raw/plain/valid.en" \
        --reference "$OUT/raw/plain/valid.$TARGET_LANG" --image-order congruent shuffled \
        --out "$OUT/seed$1/probes/entity-masking"
    run "seed$1/probe-attention-mass" visual-grounding probe attention-mass \
        --checkpoint "$checkpoints/vtlm-mmt/checkpoint_best.pt" --split valid --image-order congruent shuffled \
        --out "$OUT/seed$1/probes/attention-mass"
}

if [ -n "$FULL" ]; then
    step "probes: OUT/seedS/probes"
    for seed in $(seq "$SEEDS"); do later probes_of "$seed"; done
    finish
fi
