#!/usr/bin/env bash
# Raw files -> English in BERT's pieces, the other language in its own, a store of regions. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
lang=$TARGET_LANG
read_data '[MASK]'

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
for kind in plain masked; do
    for split in train valid test; do pair $kind/$split "$OUT/english/$kind/$split.en" $kind/$split; done
done
pair captions/train "$OUT/english/captions/train.en" captions/train
pair plain/valid "$OUT/english/plain/valid.en" captions/valid
if [ -n "$FULL" ]; then
    step "a grid in place of a detector: the cells of each photo, and what a classifier takes them for"
    grid_cells
fi
