#!/usr/bin/env bash
# Translations of every model with right, wrong and no photos; BLEU, tests over seeds. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

visual_of() { # KIND NAME ORDER
    local store=regions
    case $2 in
    bert-enc* | text-only) return ;;
    visual-aware) ;;
    grid*) store=cells ;;&
    *) printf '%s\n' --image-tags "$BERT" ;;
    esac
    printf '%s\n' --image-features "$OUT/$store" --image-ids "$OUT/ids/$1" --image-order "$3"
}

pair_of() { # KIND: the second stage of whole sources is trained with --full alone
    if [ "$1" = masked ] || [ -n "$FULL" ]; then echo learned-last-2 bert-enc-2; else echo learned-last-1 bert-enc-1; fi
}
trained_on() { [[ $1 = masked || ! $2 =~ ^(no-loss|fixed-last|learned-all|end-to-end|grid) ]]; } # KIND NAME

others=()
if [ -n "$FULL" ]; then
    others=(bert-enc-1 learned-last-1 no-loss-1 no-loss-2 fixed-last-1 learned-all-1 end-to-end grid-1 text-only visual-aware)
fi
evaluate_seeds "${others[@]}"
if [ -n "$FULL" ]; then
    step "other settings against a twin of the same: OUT/seedS/scores"
    for seed in $(seq "$SEEDS"); do
        for subset in valid test; do
            for pair in end-to-end:no-loss-2 no-loss-2:bert-enc-2 grid-1:bert-enc-1; do
                score "$seed" masked $subset "${pair%:*}" "${pair#*:}"
            done
            for other in no-loss-1 fixed-last-1 learned-all-1; do
                score "$seed" masked $subset learned-last-1 "$other"
            done
            for kind in masked plain; do
                score "$seed" $kind $subset learned-last-1 bert-enc-1
                score "$seed" $kind $subset visual-aware text-only
            done
        done
    done
fi
