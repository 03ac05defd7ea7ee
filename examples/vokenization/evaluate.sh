#!/usr/bin/env bash
# The floors, fine-tuning on every task, tables. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

step "do tokens find their photos, and which vokens are told without reading? OUT/floors.json; corpora: OUT/stats"
corpora

for seed in $(seq "$SEEDS"); do
    step "seed $seed: fine-tuning on $TASKS"
    for name in $ROWS; do finetune "$seed" "$name"; done
done
finish

step "tables: OUT/table.md; pictures: OUT/pictures"
# The paper's Figure 4.
printf '%s\n' 'Humans learn language by listening, speaking, writing, reading.' \
    'Down by the salley gardens my love and I did meet.' >"$OUT/examples.txt"
run vokens-examples visual-grounding vokenize --text "$OUT/examples.txt" --candidate-list "$OUT/candidates" \
    --retriever "$OUT/matchers/tokens" --index "$OUT/index/tokens" --device "$DEVICE" --scores --out "$OUT/vokens/examples"
run pictures visual-grounding report vokens --vokens "$OUT/vokens/examples" --images "$DATA/flickr8k/images/train.tar" \
    --out "$OUT/pictures"
python $here/table.py --out "$OUT" --seeds "$SEEDS"
