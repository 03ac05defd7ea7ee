#!/usr/bin/env bash
# The quickstart's world for models that read regions and text as one stream, vtlm_translation and vlp_translation, both
# from random numbers: do they take the senses of ambiguous nouns from pictures, too? Draws the world anew into a folder
# of its own; SEED, DEVICE and ENVIRONMENT as in run.sh, MODELS=vtlm_translation trains one alone, EPOCHS=20 half as
# long.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ -n "${ENVIRONMENT:-}" ] || bash scripts/setup.sh
export PATH="${ENVIRONMENT:-$PWD/.venv}/bin:$PATH" OMP_NUM_THREADS=1 # two commands side by side use two cores better than two threads do
seed=${SEED:-1}
models=${MODELS:-vtlm_translation vlp_translation}
epochs=${EPOCHS:-40}
for model in $models; do
    case $model in
        vtlm_translation | vlp_translation) ;;
        *) echo "MODELS should be vtlm_translation, vlp_translation or both, but one is $model" >&2; exit 2 ;;
    esac
done
here=examples/quickstart
out=${OUT:-$here/out/streams} # run.sh makes out/ anew
source $here/steps.sh # run NAME COMMAND…, step TEXT

step "draw the world: pictures, English and German sentences"
run world python $here/world.py --out "$out/world" --seed "$seed"
text=$out/world/text

step "extract features with boxes, and standardise them"
run extract visual-grounding extract --images "$out/world/images/pairs" --backbone scattering --pool grid --grid 4 --boxes \
    --device $device --out "$out/features/raw"
run standardise python $here/standardise.py --image-features "$out/features/raw" --keys "$text/train.keys" \
    --out "$out/standardised.npy"
run import visual-grounding import --arrays "$out/standardised.npy" --keys "$out/features/raw/keys.txt" \
    --boxes "$out/features/raw/boxes.npy" --made-by "scattering, standardised on the training pictures of seed $seed" \
    --out "$out/features/pairs"

step "pair the sentences with their own pictures"
for pair in train:train valid:valid test:paired; do
    run "pair-${pair#*:}" visual-grounding retrieve --method paired --image-features "$out/features/pairs" \
        --keys "$text/${pair#*:}.keys" --text "$text/${pair#*:}.en" --out "$out/ids/${pair%:*}"
done
run preprocess fairseq-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/valid" \
    --testpref "$text/paired" --destdir "$out/bin"
images=(--image-features "$out/features/pairs" --image-ids "$out/ids")

train() {
    local name=$1
    shift
    run "train-$name" fairseq-train "$out/bin" --user-dir visual_grounding --task grounded_translation \
        --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
        --dropout 0.1 "${images[@]}" --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 200 \
        --max-tokens 1024 --max-epoch "$epochs" --no-epoch-checkpoints --save-dir "$out/$name" --seed "$seed" \
        "${on_device[@]}" --log-format simple "$@"
}
translate() {
    local name=$1 model=$2 split=$3
    shift 3
    run "translate-$name" fairseq-generate "$out/bin" --user-dir visual_grounding --task grounded_translation \
        --path "$out/$model/checkpoint_best.pt" --gen-subset "$split" --beam 5 --max-tokens 4096 "${images[@]}" \
        "${on_device[@]}" "$@"
    cp "$out/logs/translate-$name.log" "$out/translations/$name.txt"
}
train_and_translate() {
    case $1 in
        vtlm_translation)
            train "$1" --arch vtlm_translation --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
                --encoder-attention-heads 4
            ;;
        vlp_translation)
            train "$1" --arch vlp_translation --bert-layers 2 --bert-size 128 --bert-ffn-size 256 --bert-heads 4
            ;;
    esac
    translate "valid.$1.own" "$1" valid
    translate "paired.$1.own" "$1" test
    translate "paired.$1.shuffled" "$1" test --image-order shuffled
}

step "train, and translate with the right pictures and with those of other sentences: $models"
training=()
for model in $models; do
    train_and_translate "$model" &
    training+=($!)
done
for job in "${training[@]}"; do
    wait "$job"
done

step "score"
python $here/score_streams.py --run "$out"
step "done"
