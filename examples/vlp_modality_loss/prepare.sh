#!/usr/bin/env bash
# Raw files -> English in BERT's pieces, the other language in its own, a store of regions. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
if [ ! -d "$DATA/flickr8k" ]; then
    echo "DATA should be a folder with flickr8k/ in it, but is '$DATA'. Name yours: DATA=/path/to/data bash $0" >&2
    exit 2
fi
lang=$TARGET_LANG

step "rows with a photo, whole and with masked nouns; captions"
run data python examples/multi30k/with_photos.py --data "$DATA" --language "$lang" --mask '[MASK]' \
    ${LIMIT:+--limit "$LIMIT"} --out "$OUT/raw"

step "regions: what a detector found with a score of at least 0.3"
run regions visual-grounding import --arrays "$DATA/flickr8k/regions/features.npy" --keys "$OUT/raw/photos.keys" \
    --boxes "$DATA/flickr8k/regions/boxes.npy" --labels "$DATA/flickr8k/regions/labels.npy" \
    --scores "$DATA/flickr8k/regions/scores.npy" --label-names "$DATA/flickr8k/regions/label_names.txt" \
    --min-score 0.3 --made-by "DEIMv2-Femto, COCO" --out "$OUT/regions"

step "English in BERT's pieces (Moses' &apos; and the like are characters again), the other language in byte pairs"
unescape() { python -c 'import html, sys; sys.stdout.writelines(map(html.unescape, sys.stdin))' <"$1" >"$2"; }
for kind in plain masked captions; do
    mkdir -p "$OUT/english/$kind"
    for file in "$OUT/raw/$kind"/*.en; do unescape "$file" "$OUT/english/$kind/${file##*/}"; done
    run "pieces-$kind" visual-grounding prepare pieces --tokenizer "$BERT" --text "$OUT/english/$kind"/*.en --out "$OUT/pieces/$kind"
done
mkdir -p "$OUT/bpe"
run learn-bpe subword-nmt learn-bpe -s "${MERGES:-4000}" -i "$OUT/raw/text/train.$lang" -o "$OUT/bpe/codes"
in_pieces() {
    local file
    for file in text/train {plain,masked}/{train,valid,test}; do
        mkdir -p "$OUT/pieces/${file%/*}"
        subword-nmt apply-bpe -c "$OUT/bpe/codes" -i "$OUT/raw/$file.$lang" -o "$OUT/pieces/$file.$lang"
    done
}
run "pieces-$lang" in_pieces
words=$OUT/pieces/plain/dict.txt
run dictionary fairseq-preprocess --source-lang "$lang" --only-source --dict-only --trainpref "$OUT/pieces/text/train" \
    --destdir "$OUT/words"
for kind in plain masked; do
    run "binarise-$kind" fairseq-preprocess --source-lang en --target-lang "$lang" --srcdict "$words" \
        --tgtdict "$OUT/words/dict.$lang.txt" --trainpref "$OUT/pieces/$kind/train" --validpref "$OUT/pieces/$kind/valid" \
        --testpref "$OUT/pieces/$kind/test" --destdir "$OUT/bin/$kind"
done
# Pre-training: captions, then the rows' own sources (steps 2 and 4). Both are validated on the development rows.
run binarise-captions fairseq-preprocess --only-source --srcdict "$words" --trainpref "$OUT/pieces/captions/train.en" \
    --validpref "$OUT/pieces/plain/valid.en" --destdir "$OUT/bin/captions"
run binarise-sources fairseq-preprocess --only-source --srcdict "$words" --trainpref "$OUT/pieces/plain/train.en" \
    --validpref "$OUT/pieces/plain/valid.en" --destdir "$OUT/bin/sources"

step "the photo of each row"
pair() { # KEYS TEXT OUT
    run "pair-${3//\//-}" visual-grounding retrieve --method paired --image-features "$OUT/regions" --keys "$OUT/raw/$1.keys" \
        --text "$OUT/english/$2.en" -n 1 --out "$OUT/ids/$3"
}
for split in train valid test; do
    pair plain/$split plain/$split plain/$split
    pair masked/$split masked/$split masked/$split
done
pair captions/train captions/train captions/train
pair plain/valid plain/valid captions/valid
