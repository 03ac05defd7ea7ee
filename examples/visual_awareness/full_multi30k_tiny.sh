#!/usr/bin/env bash
# Multi30k En-De in the small setting that later work compares on (4+4 layers, 128 wide). NOT RUN HERE.
#
#   TEXT       folder with {train,valid,test}.{en,de}, tokenised (29,000 / 1,014 / 1,000 rows, test_2016_flickr), and
#              {train,valid,test}.keys: the photo of each row
#   FLICKR30K  folder with the photos
#   ARCH       visual_aware_transformer (default), gated_fusion_transformer or selective_attention_transformer
#   RETRIEVER  optional: the OUT of full_coco_retriever.sh; then 8 retrieved photos instead of the row's own
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/full_common.sh"
need TEXT d "the folder with the tokenised Multi30k text and the photo of each row"
need FLICKR30K d "the folder with the photos of Flickr30k"
OUT=${OUT:-examples/visual_awareness/out/multi30k_tiny}
ARCH=${ARCH:-visual_aware_transformer}
for split in train valid test; do need_text "$TEXT" $split en de keys; done

mkdir -p "$OUT/bpe"
cat "$TEXT/train.en" "$TEXT/train.de" >"$OUT/bpe/training"
subword-nmt learn-bpe -s 10000 -i "$OUT/bpe/training" -o "$OUT/bpe/codes"
store=$OUT/features
if [ -n "${RETRIEVER:-}" ]; then
    store=$RETRIEVER/features/pooled
else
    visual-grounding extract --images "$FLICKR30K" --backbone resnet152 --pool mean --device cuda --out "$store"
fi
for split in train valid test; do
    for side in en de; do
        subword-nmt apply-bpe -c "$OUT/bpe/codes" -i "$TEXT/$split.$side" -o "$OUT/bpe/$split.$side"
    done
    if [ -n "${RETRIEVER:-}" ]; then
        visual-grounding retrieve --method dense --retriever "$RETRIEVER/retriever" --index "$RETRIEVER/index" \
            --text "$TEXT/$split.en" -n 8 --device cuda --out "$OUT/ids/$split"
    else
        visual-grounding retrieve --method paired --image-features "$store" --keys "$TEXT/$split.keys" \
            --text "$TEXT/$split.en" --strict --out "$OUT/ids/$split"
    fi
done
fairseq-preprocess --source-lang en --target-lang de --trainpref "$OUT/bpe/train" --validpref "$OUT/bpe/valid" \
    --testpref "$OUT/bpe/test" --joined-dictionary --destdir "$OUT/bin"

train_tiny() {
    local name=$1
    shift
    fairseq-train "$OUT/bin" --user-dir visual_grounding --task grounded_translation --share-all-embeddings \
        --encoder-layers 4 --decoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
        --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0.3 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' \
        --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 2000 --max-tokens 4096 --max-update 8000 \
        --keep-last-epochs 10 --fp16 --save-dir "$OUT/$name" --seed "${SEED:-1}" "$@"
    visual-grounding average --checkpoint-dir "$OUT/$name" --last 10 --out "$OUT/$name-averaged"
}
translate_tiny() {
    local name=$1
    shift
    fairseq-generate "$OUT/bin" --user-dir visual_grounding --task grounded_translation \
        --path "$OUT/$name-averaged/averaged.pt" --beam 5 --max-tokens 8192 --post-process subword_nmt \
        "$@" >"$OUT/$name.txt"
}
images=(--image-features "$store" --image-ids "$OUT/ids")
train_tiny text-only --arch text_only_transformer
train_tiny with-images --arch "$ARCH" "${images[@]}"
translate_tiny text-only
translate_tiny with-images "${images[@]}"
# Published for test_2016_flickr, tokenised BLEU: text 41.02, gated fusion 41.96, retrieval (RMMT) 41.45.
visual-grounding evaluate --hypothesis "$OUT/with-images.txt" --twin "$OUT/text-only.txt" \
    --reference "$TEXT/test.de" --target-lang de --out "$OUT/scores"
