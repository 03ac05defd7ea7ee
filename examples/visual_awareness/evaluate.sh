#!/usr/bin/env bash
# Recall of the retrievers on the test photos; BLEU of the translators with right, wrong and no images; results.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

for encoder in $RETRIEVERS; do
    run "recall-$encoder-test" fairseq-validate "$OUT/captions/data" --user-dir visual_grounding \
        --task image_text_matching --valid-subset test --path "$OUT/retriever-training/$encoder/checkpoint_best.pt" \
        --image-features "$OUT/features/$retriever_features.all" --batch-size 128 --log-format json "${device[@]}"
done

translate() { # KIND SUBSET NAME MODEL [images]: writes OUT/translations/KIND.SUBSET.NAME.txt
    local kind=$1 subset=$2 name=$3 translator=$4
    shift 4
    local out=$OUT/translations/$kind.$subset.$name.txt
    run "translate-$kind-$subset-$name" fairseq-generate "$OUT/bin/$kind" --user-dir visual_grounding \
        --task grounded_translation --path "$OUT/translators/${kind/noisy/plain}/$translator/checkpoint_best.pt" \
        --gen-subset "$subset" "${generation[@]}" --post-process subword_nmt "${device[@]}" "$@"
    cp "$OUT/logs/translate-$kind-$subset-$name.log" "$out.tmp"
    mv "$out.tmp" "$out" # whole, once it has its name
}

score() { # KIND SUBSET TEXT HYPOTHESIS TWIN: BLEU and a paired bootstrap
    run "score-$1-$2-$4-$5" visual-grounding evaluate --hypothesis "$OUT/translations/$1.$2.$4.txt" \
        --twin "$OUT/translations/$1.$2.$5.txt" --reference "$OUT/$1/$3.$TARGET_LANG" --target-lang "$TARGET_LANG" \
        --out "$OUT/scores/$1.$2.$4.against.$5"
}

retrieved=(--image-features "$OUT/features/pooled.collection" --image-ids "$OUT/ids/plain")
paired=(--image-features "$OUT/features/pooled.all" --image-ids "$OUT/ids/plain-paired")
noisy_retrieved=(--image-features "$OUT/features/pooled.collection" --image-ids "$OUT/ids/noisy")
noisy_paired=(--image-features "$OUT/features/pooled.all" --image-ids "$OUT/ids/noisy-paired")
masked_paired=(--image-features "$OUT/features/grid.all" --image-ids "$OUT/ids/masked")
masked_retrieved=(--image-features "$OUT/features/grid.collection" --image-ids "$OUT/ids/masked-retrieved")
mkdir -p "$OUT/translations"

whole_sources() { # on each split: retrieved images, those of other rows, none; text only
    local subset
    for subset in "$@"; do
        translate plain "$subset" text-only text-only
        translate plain "$subset" retrieved visual-aware "${retrieved[@]}"
        translate plain "$subset" shuffled visual-aware "${retrieved[@]}" --image-order shuffled
        translate plain "$subset" blank visual-aware "${retrieved[@]}" --image-order blank
    done
}

own_photos() { # on rows with a photo: that photo, that of another row
    local subset
    for subset in valid1 test; do
        translate plain "$subset" paired visual-aware "${paired[@]}"
        translate plain "$subset" shuffled-pairs visual-aware "${paired[@]}" --image-order shuffled
    done
}

noisy_sources() { # translators of whole sources meet some with words missing
    local subset
    for subset in valid test; do
        translate noisy "$subset" text-only text-only
        translate noisy "$subset" retrieved visual-aware "${noisy_retrieved[@]}"
        translate noisy "$subset" shuffled visual-aware "${noisy_retrieved[@]}" --image-order shuffled
        translate noisy "$subset" paired visual-aware "${noisy_paired[@]}"
    done
}

masked_sources() {
    local subset
    for subset in valid test; do
        translate masked "$subset" text-only text-only
        translate masked "$subset" paired visual-aware "${masked_paired[@]}"
        translate masked "$subset" shuffled visual-aware "${masked_paired[@]}" --image-order shuffled
        translate masked "$subset" blank visual-aware "${masked_paired[@]}" --image-order blank
        translate masked "$subset" retrieved visual-aware "${masked_retrieved[@]}"
    done
}

with_photos() {
    masked_sources
    whole_sources valid1 test
    own_photos
    noisy_sources
}

step "translate"
later whole_sources test1 test2 test3
later with_photos
finish

score_whole_sources() {
    local split twin
    for split in valid1:photos test:test.photos test1:test.2016 test2:test.2017 test3:test.coco; do
        score plain "${split%:*}" "${split#*:}" retrieved text-only
        score plain "${split%:*}" "${split#*:}" retrieved shuffled
        score plain "${split%:*}" "${split#*:}" blank text-only
    done
    for split in all short rare; do
        for twin in text-only shuffled; do score groups $split $split retrieved $twin; done
    done
}

score_photos() {
    local split images
    for split in valid1:photos test:test.photos; do
        score plain "${split%:*}" "${split#*:}" paired text-only
        score plain "${split%:*}" "${split#*:}" paired shuffled-pairs
    done
    for split in valid test; do
        for images in text-only shuffled; do score noisy $split $split retrieved $images; done
        score noisy $split $split paired text-only
        for images in paired blank retrieved; do score masked $split $split $images text-only; done
        score masked $split $split paired shuffled
    done
}

step "groups of rows: short sources, rare words"
run groups python $here/groups.py --run "$OUT" --language "$TARGET_LANG"

step "score"
later score_whole_sources
later score_photos
finish
python $here/results.py --run "$OUT"
