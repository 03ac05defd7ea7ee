#!/usr/bin/env bash
# Translations of every model with right, wrong and no regions; BLEU, tests over seeds; the probes. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

flags_of() { # KIND NAME ORDER: the images that a model is to have
    local store=regions
    if [[ $2 == grid* ]]; then store=cells; fi
    if [[ $2 == *mmt* ]]; then
        printf '%s\n' --image-features "$OUT/$store" --image-ids "$OUT/ids/$1" --image-order "$3"
    fi
}

translate() { # SEED KIND SUBSET NAME ORDER: OUT/seedS/translations/KIND.SUBSET.NAME[.ORDER].txt
    local seed=$1 kind=$2 subset=$3 name=$4 order=$5 visual said
    mapfile -t visual < <(flags_of "$kind" "$name" "$order")
    said=$kind.$subset.$name
    if [ "$order" != congruent ]; then said+=.$order; fi
    run "seed$seed/translate-$said" fairseq-generate "$OUT/bin/$kind" --user-dir visual_grounding \
        --task grounded_translation --path "$OUT/seed$seed/translators/$kind/$name/checkpoint_best.pt" \
        --gen-subset "$subset" "${generation[@]}" --post-process subword_nmt "${device[@]}" "${visual[@]}"
    mkdir -p "$OUT/seed$seed/translations"
    cp "$OUT/logs/seed$seed/translate-$said.log" "$OUT/seed$seed/translations/$said.txt"
}

score() { # SEED KIND SUBSET NAME TWIN: OUT/seedS/scores/KIND.SUBSET.NAME.against.TWIN
    local translations=$OUT/seed$1/translations/$2.$3
    run "seed$1/score-$2.$3.$4.against.$5" visual-grounding evaluate --hypothesis "$translations.$4.txt" \
        --twin "$translations.$5.txt" --reference "$OUT/raw/$2/$3.$TARGET_LANG" --target-lang "$TARGET_LANG" \
        ${METEOR_JAR:+--meteor-jar "$METEOR_JAR"} --out "$OUT/seed$1/scores/$2.$3.$4.against.$5"
}

models=(tlm-nmt vtlm-mmt)
if [ -n "$FULL" ]; then models+=(tlm-mmt vtlm-nmt vtlm-mmt-random unmasked-mmt people-mmt scratch-nmt scratch-mmt); fi

translations_of() { # SEED KIND: each model; the one with regions also with another row's, and with none
    local name order
    for name in "${models[@]}"; do
        translate "$1" "$2" valid "$name" congruent
        translate "$1" "$2" test "$name" congruent
    done
    for order in shuffled blank; do
        translate "$1" "$2" valid vtlm-mmt $order
        translate "$1" "$2" test vtlm-mmt $order
    done
}
scores_of() { # SEED KIND
    local name subset
    for subset in valid test; do
        score "$1" "$2" $subset vtlm-mmt tlm-nmt
        score "$1" "$2" $subset vtlm-mmt vtlm-mmt.shuffled
        score "$1" "$2" $subset vtlm-mmt vtlm-mmt.blank
        if [ -n "$FULL" ]; then
            for name in "${models[@]:2}"; do score "$1" "$2" $subset "$name" tlm-nmt; done
        fi
    done
}
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

for seed in $(seq "$SEEDS"); do
    step "seed $seed: translate, score, probe"
    for kind in masked plain; do later translations_of "$seed" $kind; done
    finish
    for kind in masked plain; do later scores_of "$seed" $kind; done
    if [ -n "$FULL" ]; then later probes_of "$seed"; fi
    finish
done
step "all seeds in one table: OUT/table"
visual-grounding report runs "$OUT"/seed* --metric tokenised_bleu --out "$OUT/table"
