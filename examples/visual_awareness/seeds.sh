#!/usr/bin/env bash
# Prepares, trains and evaluates: once, or for each of SEEDS in a folder of its own, and then a table over all of them.
# A seed is everything that is trained, the retrievers too. One that is finished isn't trained again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

if [ "$SEEDS" = 1 ]; then
    for part in prepare train evaluate; do bash $here/$part.sh; done
    exit
fi

# Seeds of other choices would fit into the same table.
choices="$TARGET_LANG $FEATURES $BACKBONE ${WEIGHTS:--} $RETRIEVERS $SIZE ${LIMIT:--} $retriever_epochs ${GRID:--} $EPOCHS $MASKED_EPOCHS $MERGES"
choices+=" $DEVICE $MATMUL"
mkdir -p "$OUT"
if [ -e "$OUT/choices.txt" ] && [ "$(cat "$OUT/choices.txt")" != "$choices" ]; then
    echo "OUT should have seeds of the same choices, but $OUT was begun with '$(cat "$OUT/choices.txt")', and these are" \
        "'$choices'. Choose another OUT, or the same settings." >&2
    exit 2
fi
echo "$choices" >"$OUT/choices.new" && mv "$OUT/choices.new" "$OUT/choices.txt"

runs=()
for seed in $(seq "$SEEDS"); do
    run=$OUT/seed$seed
    runs+=("$run")
    if [ -e "$run/results.json" ]; then
        step "seed $seed of $SEEDS is finished"
        continue
    fi
    step "seed $seed of $SEEDS"
    for part in prepare train evaluate; do OUT=$run SEED=$seed bash $here/$part.sh; done
done
python $here/results.py --run "${runs[@]}" --out "$OUT"
