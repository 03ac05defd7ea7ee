#!/usr/bin/env bash
# Translations of every model with right, wrong and no regions; BLEU, tests over seeds; the probes. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

visual_of() { # KIND NAME ORDER
    local store=regions
    case $2 in
    grid*) store=cells ;;
    all-regions*) store=all-regions ;;
    esac
    if [[ $2 == *mmt* ]]; then
        printf '%s\n' --image-features "$OUT/$store" --image-ids "$OUT/ids/$1" --image-order "$3"
    fi
}

trained_on() { # KIND NAME
    case $2 in
    synthetic*) [ "$1" = plain ] ;; # the captions that a machine translated are whole
    vtlm-mmt-random | unmasked* | people* | grid* | all-regions* | narrow* | short*) [ "$1" = masked ] ;;
    esac
}

pair_of() { echo vtlm-mmt tlm-nmt; }

others=()
if [ -n "$FULL" ]; then
    others=(tlm-mmt vtlm-nmt vtlm-mmt-random unmasked-mmt people-mmt grid-mmt scratch-nmt scratch-mmt synthetic-nmt synthetic-mmt
        all-regions-mmt narrow-mmt narrow-nmt short-mmt short-nmt)
fi
evaluate_seeds "${others[@]}"

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
    step "other settings against a twin of the same: OUT/seedS/scores"
    for seed in $(seq "$SEEDS"); do
        for name in tlm-mmt vtlm-nmt unmasked-mmt grid-mmt all-regions-mmt; do later score "$seed" masked valid $name tlm-nmt; done
        for name in narrow short scratch; do later score "$seed" masked valid $name-mmt $name-nmt; done
    done
    finish
    step "probes: OUT/seedS/probes"
    for seed in $(seq "$SEEDS"); do later probes_of "$seed"; done
    finish
fi
