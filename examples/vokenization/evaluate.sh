#!/usr/bin/env bash
# The floors, fine-tuning on every task, tables. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

if asked voken; then
    step "do tokens find their photos, and which vokens are told without reading? OUT/floors.json"
    run floors python $here/floors.py --matcher "$OUT/matchers/tokens" --control "$OUT/matchers/shuffled" --photos "$OUT/photos" \
        --captions "$OUT/captions/valid.tsv" --train "$OUT/vokens/matching/train" --valid "$OUT/vokens/matching/valid" \
        --out "$OUT/floors.json"
fi

for seed in $(seq "$SEEDS"); do
    step "seed $seed: fine-tuning on $TASKS"
    for name in $ROWS; do finetune "$seed" "$name"; done
done
finish

step "tables: OUT/table.md; corpora: OUT/stats; pictures: OUT/pictures"
texts=()
for task in $every_task; do texts+=("$task=$OUT/tasks/$task/sentences.txt"); done
run stats visual-grounding stats --text "captions=$OUT/text/captions.txt" "wiki=$OUT/text/wiki.txt" \
    "all=$OUT/text/train.txt" "${texts[@]}" --tokenizer "$BERT" --by-line captions --reference wiki --captions captions \
    --out "$OUT/stats"
# The paper's Figure 4.
printf '%s\n' 'Humans learn language by listening, speaking, writing, reading.' \
    'Down by the salley gardens my love and I did meet.' >"$OUT/examples.txt"
run vokens-examples visual-grounding vokenize --text "$OUT/examples.txt" --candidate-list "$OUT/candidates" \
    --retriever "$OUT/matchers/tokens" --index "$OUT/index/tokens" --device "$DEVICE" --scores --out "$OUT/vokens/examples"
run pictures visual-grounding report vokens --vokens "$OUT/vokens/examples" --images "$DATA/flickr8k/images/train.tar" \
    --out "$OUT/pictures"
python $here/table.py --out "$OUT" --seeds "$SEEDS"
