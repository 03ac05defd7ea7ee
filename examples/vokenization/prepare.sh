#!/usr/bin/env bash
# Raw files -> texts, captions and photos of the matcher; a matcher; vokens of the texts. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
if [ ! -d "$DATA/flickr8k" ]; then
    echo "DATA should be a folder with flickr8k/ and downstream/ in it, but is '$DATA'. Name yours: DATA=/path/to/data bash $here/run.sh" >&2
    exit 2
fi

step "captions, texts, tasks; a store of the photos' features"
run texts python $here/texts.py --data "$DATA" --out "$OUT" ${LIMIT:+--limit "$LIMIT"}
run photos visual-grounding import --arrays "$DATA/flickr8k/features/mobilenet1.0_pooled1024.npy" --keys "$OUT/photos.keys" \
    --made-by "MobileNetV1 1.0, mean of conv_pw_12" --out "$OUT/photos"

matcher() { # NAME CAPTIONS FLAGS…: OUT/matchers/NAME, exported, and OUT/index/NAME
    local name=$1 captions=$2
    shift 2
    run "captions-$name" visual-grounding prepare captions --train "$OUT/$captions/train.tsv" --valid "$OUT/captions/valid.tsv" \
        --out "$OUT/data/$name"
    run "match-$name" fairseq-train "$OUT/data/$name" --user-dir visual_grounding --task image_text_matching \
        --image-features "$OUT/photos" --text-encoder "$BERT" --caption-pieces 20 --arch token_image_matching \
        --keep-encoder-states 4 --criterion token_image_hinge --optimizer adam --lr 0.001 --clip-norm 5 --batch-size 256 \
        --max-epoch "$MATCH_EPOCHS" --no-epoch-checkpoints --save-dir "$OUT/checkpoints/$name" --seed 1 "${device[@]}" \
        --log-format simple "$@"
    run "export-$name" visual-grounding export --checkpoint "$OUT/checkpoints/$name/checkpoint_best.pt" --out "$OUT/matchers/$name"
    run "index-$name" visual-grounding index --retriever "$OUT/matchers/$name" --image-features "$OUT/photos" \
        --device "$DEVICE" --out "$OUT/index/$name"
}
step "token-image matching: on the captions, and as a control on those of other photos"
later matcher tokens captions
later matcher shuffled shuffled
if asked sentence-label propagated; then later matcher sentences captions --sentence-level; fi
finish

vokens() { # NAME FLAGS…: OUT/vokens/NAME/{train,valid}; the training photos are the candidates
    local name=$1 split
    shift
    for split in train valid; do
        run "vokens-$name-$split" visual-grounding vokenize --text "$OUT/text/$split.txt" --candidate-list "$OUT/candidates" \
            "$@" --out "$OUT/vokens/$name/$split"
    done
}
step "vokens of the texts"
precision=() # of the encoder: the default's, or that of trainings on such a CPU
if [ "$MATMUL" = bfloat16 ]; then precision=(--precision bfloat16); fi
threads=$OMP_NUM_THREADS
if ! asked sentence-label propagated term-frequency; then threads=$JOBS; fi # nothing else is done meanwhile
OMP_NUM_THREADS=$threads later vokens matching --retriever "$OUT/matchers/tokens" --index "$OUT/index/tokens" --device "$DEVICE" "${precision[@]}"
if asked sentence-label propagated; then
    later vokens sentence --method sentence --retriever "$OUT/matchers/sentences" --index "$OUT/index/sentences" --device "$DEVICE" "${precision[@]}"
fi
if asked term-frequency; then
    later vokens term-frequency --method term-frequency --tokenizer "$BERT" --image-features "$OUT/photos" \
        --captions "$OUT/captions/train.tsv"
fi
finish

binarise() { # NAME: OUT/bin/NAME, of pieces that all vokens share
    run "binarise-$1" fairseq-preprocess --only-source --srcdict "$OUT/vokens/matching/train/dict.txt" \
        --trainpref "$2" --validpref "$OUT/vokens/matching/valid/tokens.txt" --destdir "$OUT/bin/$1"
}
binarise all "$OUT/vokens/matching/train/tokens.txt"
if asked captions wiki; then
    step "captions, and as much of WikiText (the paper's Table 4)"
    run pieces visual-grounding prepare pieces --tokenizer "$BERT" --text "$OUT"/text/{captions,wiki}.txt --out "$OUT/pieces"
    for name in captions wiki; do binarise $name "$OUT/pieces/$name.txt"; done
fi
if asked bert-vision; then
    step "photos with their regions (Table 3)"
    cut -f2 "$OUT/captions/train.tsv" >"$OUT/vision.train"
    cut -f1 "$OUT/captions/train.tsv" >"$OUT/vision.train.keys"
    cut -f2 "$OUT/captions/valid.tsv" >"$OUT/vision.valid"
    cut -f1 "$OUT/captions/valid.tsv" >"$OUT/vision.valid.keys"
    run vision-pieces visual-grounding prepare pieces --tokenizer "$BERT" --text "$OUT"/vision.{train,valid} --out "$OUT/vision"
    run vision-binarise fairseq-preprocess --only-source --srcdict "$OUT/vision/dict.txt" --trainpref "$OUT/vision/vision.train" \
        --validpref "$OUT/vision/vision.valid" --destdir "$OUT/bin/vision"
    run regions visual-grounding import --arrays "$DATA/flickr8k/regions/features.npy" --keys "$OUT/photos.keys" \
        --boxes "$DATA/flickr8k/regions/boxes.npy" --labels "$DATA/flickr8k/regions/labels.npy" \
        --scores "$DATA/flickr8k/regions/scores.npy" --label-names "$DATA/flickr8k/regions/label_names.txt" \
        --min-score 0.3 --made-by "DEIMv2-Femto, COCO" --out "$OUT/regions"
    for split in train valid; do
        run "vision-ids-$split" visual-grounding retrieve --method paired --image-features "$OUT/regions" \
            --keys "$OUT/vision.$split.keys" --text "$OUT/vision.$split" --out "$OUT/ids/$split"
    done
fi
