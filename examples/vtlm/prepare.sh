#!/usr/bin/env bash
# Raw files -> sentences in pieces, a store of regions, captions translated by machine. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
lang=$TARGET_LANG
read_data "$MASK"

step "byte pair encoding, learned on the training sentences of both languages"
mkdir -p "$OUT/bpe"
cat "$OUT/raw/text/train.en" "$OUT/raw/text/train.$lang" >"$OUT/bpe/training"
run learn-bpe subword-nmt learn-bpe -s "$MERGES" -i "$OUT/bpe/training" -o "$OUT/bpe/codes"
in_pieces() { # FILES: OUT/raw/FILE -> OUT/bpe/FILE
    local file
    for file in "$@"; do
        mkdir -p "$OUT/bpe/$(dirname "$file")"
        subword-nmt apply-bpe -c "$OUT/bpe/codes" --glossaries "$MASK" -i "$OUT/raw/$file" -o "$OUT/bpe/$file"
    done
}
run pieces in_pieces {text,plain,masked}/{train,valid}.{en,"$lang"} {plain,masked}/test.{en,"$lang"} captions/train.en

# One dictionary for everything, with the mask in it: what is pre-trained and what is fine-tuned have the same words.
for side in en "$lang"; do cat "$OUT/bpe/text/train.$side" "$OUT/bpe/masked/train.$side" >"$OUT/bpe/words.$side"; done
run dictionary fairseq-preprocess --source-lang en --target-lang "$lang" --joined-dictionary --dict-only \
    --trainpref "$OUT/bpe/words" --destdir "$OUT/words"
binarise() { # NAME FLAGS: OUT/bin/NAME
    local name=$1
    shift
    run "binarise-$name" fairseq-preprocess --source-lang en --target-lang "$lang" --srcdict "$OUT/words/dict.en.txt" \
        --tgtdict "$OUT/words/dict.$lang.txt" --destdir "$OUT/bin/$name" "$@"
}
binarise text --trainpref "$OUT/bpe/text/train" --validpref "$OUT/bpe/text/valid"
for kind in plain masked; do
    binarise $kind --trainpref "$OUT/bpe/$kind/train" --validpref "$OUT/bpe/$kind/valid" --testpref "$OUT/bpe/$kind/test"
done

step "captions in the third language, by a text-only translator of all rows of Multi30k"
run train-text fairseq-train "$OUT/bin/text" --user-dir visual_grounding --task grounded_translation \
    --arch text_only_transformer "${translator[@]}" --share-all-embeddings --criterion label_smoothed_cross_entropy \
    --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler inverse_sqrt \
    --max-epoch "$TEXT_EPOCHS" --no-epoch-checkpoints --save-dir "$OUT/text" "${device[@]}" --log-format simple
binarise captions --only-source --testpref "$OUT/bpe/captions/train"
cp "$OUT/words/dict.$lang.txt" "$OUT/bin/captions" # --only-source leaves it out, the task wants it
for shard in 0 1; do # fairseq-generate ignores --num-shards and --shard-id; these two say the same
    later run "translate-captions-$shard" fairseq-generate "$OUT/bin/captions" --user-dir visual_grounding \
        --task grounded_translation --source-lang en --target-lang "$lang" --path "$OUT/text/checkpoint_best.pt" \
        "${generation[@]}" --beam 4 --distributed-world-size 2 --distributed-rank $shard "${device[@]}"
done
finish
three_way() { # the rows that people translated, and the captions that the model did
    cat "$OUT"/logs/translate-captions-[01].log | grep '^H-' | cut -c3- | sort -n | cut -f3 >"$OUT/bpe/captions/train.$lang"
    if [ "$(wc -l <"$OUT/bpe/captions/train.$lang")" != "$(wc -l <"$OUT/bpe/captions/train.en")" ]; then
        echo "$OUT/logs/translate-captions-[01].log should have a translation of every caption, but don't." >&2
        return 1
    fi
    mkdir -p "$OUT/bpe/three-way"
    local side
    for side in en "$lang"; do
        cat "$OUT/bpe/plain/train.$side" "$OUT/bpe/captions/train.$side" >"$OUT/bpe/three-way/train.$side"
    done
    cat "$OUT/raw/plain/train.keys" "$OUT/raw/captions/train.keys" >"$OUT/raw/three-way.keys"
}
run three-way three_way
binarise three-way --trainpref "$OUT/bpe/three-way/train" --validpref "$OUT/bpe/plain/valid"

step "the photo of each row"
for kind in plain masked; do
    for split in train valid test; do pair $kind/$split "$OUT/raw/$kind/$split.en" $kind/$split; done
done
pair three-way "$OUT/bpe/three-way/train.en" three-way/train
pair plain/valid "$OUT/raw/plain/valid.en" three-way/valid

if [ -n "$FULL" ]; then
    step "a grid in place of a detector: the cells of each photo, and what a classifier takes them for"
    grid_cells
    step "all regions of the detector, however unsure it is"
    import_regions all-regions 0
fi
