#!/usr/bin/env bash
# Perplexities of captions and passages, scores of tasks, tables over seeds. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

perplexity() { # SEED NAME MODEL FLAGS…: OUT/seedS/scores/NAME, of development lines
    local seed=$1 name=$2 model=$3
    shift 3
    run "seed$seed/perplexity-$name" visual-grounding evaluate perplexity --device "$DEVICE" \
        --checkpoint "$OUT/seed$seed/pretrained/$model/checkpoint_last.pt" "$@" --out "$OUT/seed$seed/scores/$name"
}
captions_of() { # NAME: flags for the development captions, asked of a model of this strategy
    case $1 in
    none) printf '%s\n' --split valid --data "$OUT/bin/captions" ;;
    none-captions | i2t* | t2i | both | regions-*) printf '%s\n' --split captions-valid ;;
    *) printf '%s\n' --split valid --data "$OUT/bin/captions" --image-ids "$OUT/ids/paired" --images-per-sentence 1 ;;
    esac
}
perplexities() { # SEED STRATEGY: of captions with their own photo, without, with another's; of passages, all by one mask
    local seed=$1 name=$2 of found=${2%-*} wiki=(--split valid --masks "$OUT/ids/wiki/scene/valid")
    mapfile -t of < <(captions_of "$name")
    case $name in
    none | none-captions) perplexity "$seed" "captions.$name" "$name" "${of[@]}" ;;
    *)
        perplexity "$seed" "captions.$name.shuffled" "$name" "${of[@]}" --image-order congruent shuffled
        perplexity "$seed" "captions.$name.blank" "$name" "${of[@]}" --image-order congruent blank
        ;;
    esac
    case $name in object-1 | object-4) found=$name ;; esac
    case $name in keyword-* | scene-* | object-*) wiki+=(--image-ids "$OUT/ids/wiki/$found" --images-per-sentence "${name#*-}") ;; esac
    perplexity "$seed" "wiki.$name" "$name" "${wiki[@]}"
}
score() { # SEED TASK STRATEGY: OUT/seedS/scores/TASK.STRATEGY, against the encoder alone
    run "seed$1/score-$2-$3" visual-grounding evaluate predictions --device "$DEVICE" --split "$(split_of "$2")" \
        --checkpoint "$OUT/seed$1/tuned/$2/$3/checkpoint_last.pt" --twin-checkpoint "$OUT/seed$1/tuned/$2/bert/checkpoint_last.pt" \
        --out "$OUT/seed$1/scores/$2.$3"
}
split_of() { case $1 in sick) echo valid ;; *) echo test ;; esac } # SICK's own test set isn't at hand

for seed in $(seq "$SEEDS"); do
    step "seed $seed: perplexities, tasks"
    for name in $STRATEGIES; do later perplexities "$seed" "$name"; done
    # The floors: the same captions, asked of the twin that learned from the same text without photos.
    for name in i2t i2t-shuffled; do
        if ! asked "$name " || ! asked "none-captions "; then continue; fi
        twin=(--split captions-valid --twin-checkpoint "$OUT/seed$seed/pretrained/none-captions/checkpoint_last.pt")
        later perplexity "$seed" "floor.$name" "$name" "${twin[@]}" --image-order congruent
        later perplexity "$seed" "floor.$name.shuffled" "$name" "${twin[@]}" --image-order shuffled
    done
    for task in $TASKS; do
        for name in $TUNED; do later score "$seed" "$task" "$name"; done
    done
done
finish
step "tables over seeds: OUT/table, and of what seed 1 alone has: OUT/table-seed1"
report_seeds

# Table 1: perplexity, memory and time against the regions of a photo; the floors.
memory() { # NAME FLAGS…: of a step with as many positions
    local name=$1
    shift
    run "$name" env BENCHMARK_LIMIT=3600 python benchmarks/region_memory.py --encoder "$BERT" "${sizes[@]}" --pieces "$PIECES" \
        --batch-size "$BATCH" --device "$DEVICE" "$@" --out "$OUT/$name.png"
}
memory memory --positions 0 1
if asked regions-; then memory memory-regions --feature-size 64 --positions 1 4 8 16; fi
python $here/cost.py --out "$OUT"
