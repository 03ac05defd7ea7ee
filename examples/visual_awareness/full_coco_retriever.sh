#!/usr/bin/env bash
# The retriever of VA §2.1 and §4.1 on COCO, Karpathy split (113,287 / 5,000 / 5,000 photos). NOT RUN HERE.
#
#   COCO       folder with train2014/ and val2014/
#   KARPATHY   dataset_coco.json of the Karpathy split
#
# Features of 123,287 photos, 49 cells of 2,048 numbers each, take about 25 GB on disk.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/full_common.sh"
need COCO d "the folder with train2014/ and val2014/"
need KARPATHY f "dataset_coco.json of the Karpathy split"
OUT=${OUT:-examples/visual_awareness/out/coco}

# train.tsv, valid.tsv, test.tsv (`key<TAB>caption`) and the lists of photos that `extract` reads
python examples/visual_awareness/karpathy.py --json "$KARPATHY" --out "$OUT/captions"
cp "$OUT/captions/all.txt" "$COCO/karpathy.txt" # a list's paths are relative to its own folder

# The map before pooling for the retriever, one vector a photo for the translator.
visual-grounding extract --images "$COCO/karpathy.txt" --backbone resnet152 --pool grid --device cuda \
    --out "$OUT/features/grid"
visual-grounding extract --images "$COCO/karpathy.txt" --backbone resnet152 --pool mean --device cuda \
    --out "$OUT/features/pooled"

visual-grounding prepare captions --train "$OUT/captions/train.tsv" --valid "$OUT/captions/valid.tsv" \
    --test "$OUT/captions/test.tsv" --out "$OUT/captions/data"
# Deviation: the CNN stays frozen; in the retriever that the paper names it is trained, too, from the 9th epoch on.
# Assumption: hardest negatives in both directions, as there; eq. 1 of the paper shows the image's side alone.
fairseq-train "$OUT/captions/data" --user-dir visual_grounding --task image_text_matching \
    --image-features "$OUT/features/grid" --arch visual_semantic_embedding --text-encoder sru --sru-layers 4 \
    --joint-size 2400 --text-embed-size 620 --text-dropout 0.25 --image-dropout 0.5 \
    --criterion hardest_negative_triplet --triplet-direction both --triplet-margin 0.2 --batch-size 160 \
    --optimizer adam --lr 0.001,0.0005,0.00025,0.000125,0.0000625,0.00003125 --lr-scheduler fixed --max-epoch 60 \
    --best-checkpoint-metric recall_sum --maximize-best-checkpoint-metric --no-epoch-checkpoints \
    --save-dir "$OUT/training" --seed 1
# Reported in the paper for its retriever: R@10 = 94.0 %.
fairseq-validate "$OUT/captions/data" --user-dir visual_grounding --task image_text_matching --valid-subset test \
    --path "$OUT/training/checkpoint_best.pt" --image-features "$OUT/features/grid" --batch-size 128
visual-grounding export --checkpoint "$OUT/training/checkpoint_best.pt" --data "$OUT/captions/data" \
    --out "$OUT/retriever"
visual-grounding index --retriever "$OUT/retriever" --image-features "$OUT/features/grid" --device cuda \
    --out "$OUT/index"
