#!/usr/bin/env bash
# Trains the retrievers, finds 8 images for every row of Multi30k, and trains text-only and visual-aware translators.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source examples/visual_awareness/retriever.sh

retrieve() {
    local out=$1
    shift
    run "retrieve-${out//\//-}" visual-grounding retrieve --method dense --retriever "$OUT/retriever/$retriever" \
        --index "$OUT/index" --device "$DEVICE" --out "$OUT/ids/$out" "$@"
}

pair() { # the photo of the row itself
    run "pair-${1//\//-}" visual-grounding retrieve --method paired --image-features "$OUT/features/grid.all" \
        --keys "$2.keys" --text "$2.en" --out "$OUT/ids/$1"
}

train_translator() {
    local kind=$1 name=$2 epochs=$3
    shift 3
    run "train-$kind-$name" fairseq-train "$OUT/bin/$kind" --user-dir visual_grounding --task grounded_translation \
        "${model[@]}" --share-all-embeddings --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler inverse_sqrt \
        --ignore-unused-valid-subsets --max-epoch "$epochs" --no-epoch-checkpoints \
        --save-dir "$OUT/translators/$kind/$name" --seed "$SEED" "${device[@]}" --log-format simple "$@"
}

retrievers_and_images() {
    local encoder split name
    for encoder in $RETRIEVERS; do
        step "retriever: $encoder"
        case $encoder in
        sru | bag) train_retriever "$encoder" --text-encoder "$encoder" --text-dropout "$text_dropout" ;;
        minilm) train_retriever minilm --text-encoder "$BERT" --text-encoder-freeze --text-dropout 0 ;;
        *) echo "RETRIEVERS should be among sru, bag and minilm, but has '$encoder'." >&2; return 2 ;;
        esac
    done
    retriever=${RETRIEVERS##* }
    step "8 images for every row of Multi30k, found by retriever $retriever"
    run index visual-grounding index --retriever "$OUT/retriever/$retriever" \
        --image-features "$OUT/features/$retriever_features.collection" --device "$DEVICE" --out "$OUT/index"
    # A training row whose own photo is in the collection doesn't get it, as a test row can't either.
    retrieve plain/train --text "$OUT/plain/train.en" --exclude-paired "$OUT/plain/train.keys" -n 8
    for split in valid1:photos test:test.photos test1:test.2016 test2:test.2017 test3:test.coco; do
        name=${split#*:}
        retrieve "plain/${split%:*}" --text "$OUT/plain/$name.en" -n 8
    done
    retrieve plain/valid --text "$OUT/plain/valid.en" -n 8
    for split in valid test; do
        retrieve "noisy/$split" --text "$OUT/noisy/$split.en" -n 8
        retrieve "masked-retrieved/$split" --text "$OUT/masked/$split.en" -n 1
    done
}

masked_translators() {
    step "translators of sources with masked nouns, with the row's own photo"
    train_translator masked text-only "$MASKED_EPOCHS" "${masked_optimiser[@]}" --arch text_only_transformer
    train_translator masked visual-aware "$MASKED_EPOCHS" "${masked_optimiser[@]}" --arch visual_aware_transformer \
        --image-features "$OUT/features/grid.all" --image-ids "$OUT/ids/masked"
}

for split in train valid test; do pair "masked/$split" "$OUT/masked/$split"; done
for split in valid test; do pair "noisy-paired/$split" "$OUT/noisy/$split"; done
pair plain-paired/valid1 "$OUT/plain/photos"
pair plain-paired/test "$OUT/plain/test.photos"

# Two lanes of about equal length: in each is what needs what stands before it.
with_retrieved_images() {
    retrievers_and_images
    step "a translator of whole sources, with 8 retrieved images"
    train_translator plain visual-aware "$EPOCHS" "${optimiser[@]}" --arch visual_aware_transformer \
        --image-features "$OUT/features/pooled.collection" --image-ids "$OUT/ids/plain"
}
others() {
    masked_translators
    train_translator plain text-only "$EPOCHS" "${optimiser[@]}" --arch text_only_transformer
}
later with_retrieved_images
later others
finish
