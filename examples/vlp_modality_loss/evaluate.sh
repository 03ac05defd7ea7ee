#!/usr/bin/env bash
# Translations of every model with right, wrong and no photos; BLEU, tests over seeds; Fig. 3. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

flags_of() { # KIND NAME ORDER: the images that a model is to have
    case $2 in
    bert-enc* | text-only) ;;
    visual-aware) printf '%s\n' --image-features "$OUT/regions" --image-ids "$OUT/ids/$1" --image-order "$3" ;;
    *) printf '%s\n' --image-features "$OUT/regions" --image-ids "$OUT/ids/$1" --image-tags "$BERT" --image-order "$3" ;;
    esac
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

models=(bert-enc-2 learned-last-2)
if [ -n "$FULL" ]; then
    models+=(bert-enc-1 learned-last-1 no-loss-2 fixed-last-2 learned-all-2 end-to-end text-only visual-aware)
fi

translations_of() { # SEED KIND: each model; those with photos of default rows also with another row's, and with none
    local name order subset
    for subset in valid test; do
        for name in "${models[@]}"; do translate "$1" "$2" $subset "$name" congruent; done
        for order in shuffled blank; do translate "$1" "$2" $subset learned-last-2 $order; done
    done
}
scores_of() { # SEED KIND
    local name subset
    for subset in valid test; do
        score "$1" "$2" $subset learned-last-2 bert-enc-2
        score "$1" "$2" $subset learned-last-2 learned-last-2.shuffled
        score "$1" "$2" $subset learned-last-2 learned-last-2.blank
        if [ -n "$FULL" ]; then
            for name in "${models[@]:2}"; do score "$1" "$2" $subset learned-last-2 "$name"; done
        fi
    done
}

for seed in $(seq "$SEEDS"); do
    step "seed $seed: translate and score"
    for kind in masked plain; do later translations_of "$seed" $kind; done
    finish
    for kind in masked plain; do later scores_of "$seed" $kind; done
    finish
done
step "all seeds in one table: OUT/table; BLEU of the development rows over both stages: OUT/figure3.png"
visual-grounding report runs "$OUT"/seed* --metric tokenised_bleu --out "$OUT/table"
python $here/figure3.py --logs "$OUT/logs/seed1" --model learned-last --out "$OUT/figure3.png"
