#!/usr/bin/env bash
# Raw files -> captions, feature stores, sentences in pieces (BPE). Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
if [ ! -d "$DATA/flickr8k" ]; then
    echo "DATA should be a folder with flickr8k/ in it, but is '$DATA'. Name yours: DATA=/path/to/data bash $0" >&2
    exit 2
fi

step "captions, sentences, noun masks, overlap of test text and image collection"
run data python $here/data.py --data "$DATA" --language "$TARGET_LANG" ${LIMIT:+--limit "$LIMIT"} --out "$OUT"

step "image features: collection (training photos, which can be retrieved) and all"
if [ "$FEATURES" = extract ]; then
    mkdir -p "$OUT/photos"
    for split in train dev test; do tar -xf "$DATA/flickr8k/images/$split.tar" -C "$OUT/photos"; done
    cp "$OUT/arrays/collection.keys" "$OUT/photos/collection.txt"
    cp "$OUT/arrays/all.keys" "$OUT/photos/all.txt"
    for part in collection all; do
        run "extract-pooled-$part" visual-grounding extract --images "$OUT/photos/$part.txt" --backbone "$BACKBONE" \
            ${WEIGHTS:+--weights "$WEIGHTS"} --pool mean --device "$DEVICE" --out "$OUT/features/pooled.$part"
        run "extract-grid-$part" visual-grounding extract --images "$OUT/photos/$part.txt" --backbone "$BACKBONE" \
            ${WEIGHTS:+--weights "$WEIGHTS"} --pool grid ${GRID:+--grid "$GRID"} --device "$DEVICE" --out "$OUT/features/grid.$part"
    done
else
    # What is trained on one store meets others: --made-by says that the same network made them.
    for store in pooled.collection pooled.all grid.collection grid.all; do
        run "import-$store" visual-grounding import --arrays "$OUT/arrays/$store.npy" \
            --keys "$OUT/arrays/${store#*.}.keys" --made-by "MobileNet 1.0, ${store%.*}" --out "$OUT/features/$store"
    done
fi

step "retriever data"
run prepare visual-grounding prepare captions --train "$OUT/captions/train.tsv" --valid "$OUT/captions/valid.tsv" \
    --test "$OUT/captions/test.tsv" --out "$OUT/captions/data"

step "byte pair encoding, learned on the training sentences of both languages, and fairseq's binary files"
mkdir -p "$OUT/bpe"
cat "$OUT/plain/train.en" "$OUT/plain/train.$TARGET_LANG" >"$OUT/bpe/training"
run learn-bpe subword-nmt learn-bpe -s "$MERGES" -i "$OUT/bpe/training" -o "$OUT/bpe/codes"
for kind in plain masked noisy; do
    mkdir -p "$OUT/bpe/$kind"
    for file in "$OUT/$kind"/*.en "$OUT/$kind"/*."$TARGET_LANG"; do
        subword-nmt apply-bpe -c "$OUT/bpe/codes" --glossaries '\[MASK\]' -i "$file" -o "$OUT/bpe/$kind/${file##*/}" \
            2>/dev/null
    done
done
bpe=$OUT/bpe
run preprocess-plain fairseq-preprocess --source-lang en --target-lang "$TARGET_LANG" --joined-dictionary \
    --trainpref "$bpe/plain/train" --validpref "$bpe/plain/valid,$bpe/plain/photos" \
    --testpref "$bpe/plain/test.photos,$bpe/plain/test.2016,$bpe/plain/test.2017,$bpe/plain/test.coco" \
    --destdir "$OUT/bin/plain"
run preprocess-masked fairseq-preprocess --source-lang en --target-lang "$TARGET_LANG" --joined-dictionary \
    --trainpref "$bpe/masked/train" --validpref "$bpe/masked/valid" --testpref "$bpe/masked/test" \
    --destdir "$OUT/bin/masked"
run preprocess-noisy fairseq-preprocess --source-lang en --target-lang "$TARGET_LANG" --joined-dictionary \
    --srcdict "$OUT/bin/plain/dict.en.txt" --validpref "$bpe/noisy/valid" --testpref "$bpe/noisy/test" \
    --destdir "$OUT/bin/noisy"
