#!/usr/bin/env bash
# Raw files -> SNLI and CoNLL-2003, a retriever, 8 images for every sentence. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source examples/visual_awareness/retriever.sh
if [ ! -d "$DATA/flickr8k" ]; then
    echo "DATA should be a folder with flickr8k/ and downstream/ in it, but is '$DATA'. Name yours: DATA=/path/to/data bash $here/run.sh" >&2
    exit 2
fi
step "captions and photos; premises and hypotheses of SNLI, sentences of CoNLL-2003"
run data python examples/visual_awareness/data.py --data "$DATA" --language de ${LIMIT:+--limit "$LIMIT"} --out "$OUT"
for store in pooled.collection pooled.all; do
    run "import-$store" visual-grounding import --arrays "$OUT/arrays/$store.npy" \
        --keys "$OUT/arrays/${store#*.}.keys" --made-by "MobileNet 1.0, ${store%.*}" --out "$OUT/features/$store"
done
run prepare visual-grounding prepare captions --train "$OUT/captions/train.tsv" --valid "$OUT/captions/valid.tsv" \
    --test "$OUT/captions/test.tsv" --out "$OUT/captions/data"
mkdir -p "$OUT/raw"
for file in snli/sample_train.tsv snli/sample_dev.tsv snli/test.tsv; do
    head -n "$((${LIMIT:-1000000} + 1))" "$DATA/downstream/$file" >"$OUT/raw/$(basename "$file")"
done
for file in train testa; do # sentences end in blank lines: whole ones are kept
    awk -v most="${LIMIT:-1000000}" 'BEGIN { RS = ""; ORS = "\n\n" } NR <= most' "$DATA/downstream/conll2003/eng.$file" >"$OUT/raw/eng.$file"
done
run prepare-nli visual-grounding prepare snli --train "$OUT/raw/sample_train.tsv" --valid "$OUT/raw/sample_dev.tsv" \
    --test "$OUT/raw/test.tsv" --tokenizer "$BERT" --out "$OUT/tasks/nli"
run prepare-ner visual-grounding prepare conll --train "$OUT/raw/eng.train" --valid "$OUT/raw/eng.testa" --tokenizer "$BERT" \
    --out "$OUT/tasks/ner"

step "a retriever, and 8 images for every premise and every sentence"
train_retriever minilm --text-encoder "$BERT" --text-encoder-freeze --text-dropout 0
run index visual-grounding index --retriever "$OUT/retriever/minilm" --image-features "$OUT/features/pooled.collection" \
    --device "$DEVICE" --out "$OUT/index"
for task in nli ner; do
    for text in "$OUT/tasks/$task"/*.first; do
        split=$(basename "$text" .first)
        run "retrieve-$task-$split" visual-grounding retrieve --method dense --retriever "$OUT/retriever/minilm" \
            --index "$OUT/index" --device "$DEVICE" --text "$text" -n 8 --out "$OUT/ids/$task/$split"
    done
done
# How many sentences are captions of the collection, so that their own photo can be found.
cp "$OUT/captions/train.tsv" "$OUT/captions.tsv"
run overlap python -c "import sys; sys.path.insert(0, 'examples/grounding_strategies'); from pathlib import Path; import corpora; corpora.write_overlap(Path('$OUT'), sorted(Path('$OUT/tasks').iterdir()))"
