#!/usr/bin/env bash
# Visually grounded translation in minutes, offline: draws a small world in which English nouns are ambiguous, and shows
# that pictures disambiguate them. Every step is one command of the package or of fairseq; SEED=2 makes another world,
# DEVICE=cuda computes on a GPU, ENVIRONMENT=DIR takes a virtual environment that is ready instead of making .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ -n "${ENVIRONMENT:-}" ] || bash scripts/setup.sh
export PATH="${ENVIRONMENT:-$PWD/.venv}/bin:$PATH" OMP_NUM_THREADS=1 # two commands side by side use two cores better than two threads do
seed=${SEED:-1}
here=examples/quickstart
out=${OUT:-$here/out}
source $here/steps.sh # run NAME COMMAND…, step TEXT

step "draw the world: pictures, captions, English and German sentences"
run world python $here/world.py --out "$out/world" --seed "$seed"

step "extract features: a wavelet scattering network, which has no weights to download"
extract() {
    run "extract-$1" visual-grounding extract --images "$out/world/images/$1" --backbone scattering --pool grid --grid 4 \
        --device $device --out "$out/features/$1"
}
extract collection &
other=$!
extract pairs
wait $other

step "pair the sentences with their own pictures"
text=$out/world/text
for pair in train:train valid:valid test:paired; do
    run "pair-${pair#*:}" visual-grounding retrieve --method paired --image-features "$out/features/pairs" \
        --keys "$text/${pair#*:}.keys" --text "$text/${pair#*:}.en" --out "$out/ids/${pair%:*}"
done
run preprocess fairseq-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/valid" \
    --testpref "$text/paired,$text/retrieved" --destdir "$out/bin"

train_translator() {
    local name=$1
    shift
    run "train-$name" fairseq-train "$out/bin" --user-dir visual_grounding --task grounded_translation \
        --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
        --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0.1 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' \
        --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 200 --max-tokens 2048 --max-epoch 20 \
        --no-epoch-checkpoints --save-dir "$out/$name" --seed "$seed" "${on_device[@]}" --log-format simple "$@"
}

step "train a translator that sees pictures; beside it a retriever on the collection's captions, and the text-only twin"
train_translator images --arch visual_aware_transformer --visual-standardise --visual-dropout 0.1 \
    --image-features "$out/features/pairs" --image-ids "$out/ids" &
other=$!
run prepare visual-grounding prepare captions --train "$out/world/captions.train.tsv" --valid "$out/world/captions.valid.tsv" \
    --out "$out/captions"
run train-retriever fairseq-train "$out/captions" --user-dir visual_grounding --task image_text_matching \
    --image-features "$out/features/collection" --arch visual_semantic_embedding --joint-size 256 --joint-batch-norm \
    --text-embed-size 128 --sru-layers 1 --text-dropout 0.1 --image-dropout 0.1 --criterion hardest_negative_triplet \
    --triplet-direction both --batch-size 128 --optimizer adam --lr 0.002 --clip-norm 2 --max-epoch 50 \
    --num-workers 0 --validate-interval 5 --best-checkpoint-metric recall_sum --maximize-best-checkpoint-metric --no-epoch-checkpoints \
    --save-dir "$out/retriever-training" --seed "$seed" "${on_device[@]}" --log-format simple
train_translator text-only --arch text_only_transformer
wait $other

step "index the collection, retrieve 8 pictures for each sentence that has a cue"
run export visual-grounding export --checkpoint "$out/retriever-training/checkpoint_best.pt" --data "$out/captions" \
    --out "$out/retriever"
run index visual-grounding index --retriever "$out/retriever" --image-features "$out/features/collection" --device $device \
    --out "$out/index"
run retrieve visual-grounding retrieve --method dense --retriever "$out/retriever" --index "$out/index" --device $device \
    --text "$text/retrieved.en" -n 8 --out "$out/ids/test1"

step "translate both tests: text only, with pictures, with shuffled pictures, with none"
translate() {
    local name=$1 model=$2 test=$3
    shift 3
    run "translate-$name" fairseq-generate "$out/bin" --user-dir visual_grounding --task grounded_translation \
        --path "$out/$model/checkpoint_best.pt" --gen-subset "$test" --beam 5 --max-tokens 4096 "${on_device[@]}" "$@"
    cp "$out/logs/translate-$name.log" "$out/translations/$name.txt"
}
for test in test:paired:pairs test1:retrieved:collection; do
    IFS=: read -r split name store <<<"$test"
    images=(--image-features "$out/features/$store" --image-ids "$out/ids")
    (
        translate "$name.text_only" text-only "$split"
        translate "$name.images" images "$split" "${images[@]}"
    ) &
    other=$!
    translate "$name.shuffled" images "$split" "${images[@]}" --image-order shuffled
    translate "$name.blank" images "$split" "${images[@]}" --image-order blank
    wait $other
done

step "score"
python $here/score.py --world "$out/world" --run "$out"
run senses python $here/senses.py --run "$out"
echo "One sentence, two pictures, two translations, and where the model looked: $out/senses.png"
step "done"
