#!/usr/bin/env bash
# After run.sh: which of two German sentences, one with either sense of the ambiguous noun, is more probable to the
# model? CoMMuTE's way (Futeral et al. 2023), with pictures, with those of other sentences, and for the text-only twin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="${ENVIRONMENT:-$PWD/.venv}/bin:$PATH" OMP_NUM_THREADS=1
here=examples/quickstart
run=${OUT:-$here/out}
if [ ! -f "$run/results.json" ]; then
    echo "OUT should be a folder that $here/run.sh has finished, but is $run. Run it first: bash $here/run.sh" >&2
    exit 2
fi
out=$run/contrastive
source $here/steps.sh # run NAME COMMAND…, step TEXT

step "the German sentence of each English one, and that of its other sense"
python $here/other_sense.py --text "$run/world/text/paired" --out "$out/text"
run preprocess fairseq-preprocess --source-lang en --target-lang de --srcdict "$run/bin/dict.en.txt" \
    --tgtdict "$run/bin/dict.de.txt" --testpref "$out/text/correct,$out/text/incorrect" --destdir "$out/bin"
mkdir -p "$out/ids"
for subset in test test1; do ln -sfn "$(realpath "$run/ids/test")" "$out/ids/$subset"; done

step "score both"
images=(--image-features "$run/features/pairs" --image-ids "$out/ids")
score() { # NAME MODEL FLAGS…
    local name=$1 model=$2 side
    shift 2
    for side in test:correct test1:incorrect; do
        run "score-$name-${side#*:}" fairseq-generate "$out/bin" --gen-subset "${side%:*}" --user-dir visual_grounding \
            --task grounded_translation --path "$run/$model/checkpoint_best.pt" --score-reference --max-tokens 4096 \
            "${on_device[@]}" "$@"
    done
}
score images images "${images[@]}"
score shuffled images "${images[@]}" --image-order shuffled
score text-only text-only
for twin in shuffled text-only; do
    visual-grounding evaluate contrastive --correct "$out/logs/score-images-correct.log" \
        --incorrect "$out/logs/score-images-incorrect.log" --twin-correct "$out/logs/score-$twin-correct.log" \
        --twin-incorrect "$out/logs/score-$twin-incorrect.log" --reference "$out/text/correct.de" --out "$out/$twin"
done
step "done"
