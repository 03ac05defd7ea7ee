#!/usr/bin/env bash
# Raw files -> captions, passages, photos; images for passages and for the tasks' sentences. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
if [ ! -d "$DATA/flickr8k" ]; then
    echo "DATA should be a folder with flickr8k/ and downstream/ in it, but is '$DATA'. Name yours: DATA=/path/to/data bash $here/run.sh" >&2
    exit 2
fi
step "captions, passages of WikiText, word vectors, nouns; photos as one region each"
run texts python $here/corpora.py --data "$DATA" --out "$OUT" --words $((PIECES * 7 / 10)) ${LIMIT:+--limit "$LIMIT"}
run photos visual-grounding import --arrays "$DATA/flickr8k/features/mobilenet1.0_pooled1024.npy" --keys "$OUT/photos.keys" \
    --made-by "MobileNetV1 1.0, mean of conv_pw_12" --out "$OUT/photos"
for regions in 1 4 8 16; do
    if asked "regions-$regions "; then
        run "regions-$regions" visual-grounding import --arrays "$OUT/regions/$regions.npy" --keys "$OUT/photos.keys" \
            --made-by "DEIMv2-Femto, COCO" --out "$OUT/detected/$regions"
    fi
done
for text in captions wiki; do
    run "pieces-$text" visual-grounding prepare pieces --tokenizer "$BERT" --text "$OUT/$text"/*.txt --out "$OUT/pieces/$text"
    pieces=$OUT/pieces/$text tests=()
    if [ $text = wiki ]; then tests=(--testpref "$pieces/test.txt"); fi
    run "binarise-$text" fairseq-preprocess --only-source --srcdict "$pieces/dict.txt" --trainpref "$pieces/train.txt" \
        --validpref "$pieces/valid.txt" "${tests[@]}" --destdir "$OUT/bin/$text"
done

find_images() { # METHOD TEXT IDS FLAGS…: OUT/ids/IDS, with the flags of `finder`
    local method=$1 text=$2 ids=$3 name=retrieve-${3//\//-}
    shift 3
    if [ "$method" = object ]; then set -- "$@" ${LIMIT:+--images-per-noun 1}; fi # of a slice no noun has ten
    case $method in
    keyword)
        run "$name" visual-grounding retrieve --method keyword --captions "$OUT/captions.tsv" \
            --image-features "$OUT/photos" --text "$text" "$@" --out "$OUT/ids/$ids"
        ;;
    scene)
        run "$name" visual-grounding retrieve --method scene --captions "$OUT/captions.tsv" --word-vectors "$OUT/vectors.txt" \
            --image-features "$OUT/photos" --text "$text" "$@" --out "$OUT/ids/$ids"
        ;;
    object)
        run "$name" visual-grounding retrieve --method object --nouns "$OUT/nouns.tsv" --word-vectors "$OUT/vectors.txt" \
            --tagger none --image-features "$OUT/photos" --text "$text" "$@" --out "$OUT/ids/$ids"
        ;;
    esac
}

step "each caption's own photo; images for development passages, without the words that a mask hides: $METHODS"
for split in train valid; do
    run "pair-$split" visual-grounding retrieve --method paired --image-features "$OUT/photos" \
        --keys "$OUT/captions/$split.keys" --text "$OUT/captions/$split.txt" --out "$OUT/ids/paired/$split"
done
masked=(--mask-prob 0.15 --mask-tokenizer "$BERT" --mask-max-pieces "$PIECES")
for method in $METHODS; do later find_images "$method" "$OUT/wiki/valid.txt" "wiki/$method/valid" -n 24 "${masked[@]}"; done
for name in object-1 object-4; do # their nouns are fewer, not the first of eight
    if asked "$name "; then later find_images object "$OUT/wiki/valid.txt" "wiki/$name/valid" -n "${name#*-}" "${masked[@]}"; fi
done
finish

rows() { # FILE…: these; under LIMIT copies of their first rows (few of JOCI's are SNLI's: it stays whole), one name a line
    local file
    for file; do
        if [ -z "$LIMIT" ]; then echo "$file" && continue; fi
        mkdir -p "$OUT/raw/first"
        head -n "$((LIMIT + 1))" "$file" >"$OUT/raw/first/$(basename "$file")"
        echo "$OUT/raw/first/$(basename "$file")"
    done
}
prepare_task() { # TASK: OUT/tasks/TASK
    local out=$OUT/tasks/$1 data=$DATA/downstream files
    case $1 in
    sick)
        mapfile -t files < <(rows "$data"/sick/SICK_{train,trial}.txt)
        run prepare-sick visual-grounding prepare sick --train "${files[0]}" --valid "${files[1]}" --tokenizer "$BERT" --out "$out"
        ;;
    rte) run prepare-rte visual-grounding prepare rte --all "$(rows "$data/rte/train.tsv")" --tokenizer "$BERT" --out "$out" ;;
    joci)
        run unzip-joci python -m zipfile -e "$data/joci/joci.csv.zip" "$OUT/raw"
        run prepare-joci visual-grounding prepare joci --all "$OUT/raw/joci.csv" --only SUBSET=SNLI --tokenizer "$BERT" --out "$out"
        ;;
    vua | vuan)
        data+=/vua/VUA_$([ "$1" = vua ] || echo seq_)formatted
        mapfile -t files < <(rows "$data"_{train,val,test}.csv)
        run "prepare-$1" visual-grounding prepare vua --train "${files[0]}" --valid "${files[1]}" --test "${files[2]}" \
            --tokenizer "$BERT" --out "$out"
        ;;
    pdtb)
        mapfile -t files < <(rows "$data"/discogem_substitute_for_pdtb/*_wide.tsv)
        run prepare-pdtb visual-grounding prepare pdtb --all "${files[0]}" "${files[@]:1}" --tokenizer "$BERT" --out "$out"
        ;;
    esac
}
step "tasks: $TASKS; images for their first sentences"
for task in $TASKS; do
    prepare_task "$task"
    for method in $METHODS; do
        for text in "$OUT/tasks/$task"/*.first; do
            split=$(basename "$text" .first)
            later find_images "$method" "$text" "tasks/$task/$method/$split" -n 16
        done
    done
done
finish
run "overlap-${TASKS// /-}" python -c "import sys; sys.path.insert(0, '$here'); from pathlib import Path; import corpora; corpora.write_overlap(Path('$OUT'), sorted(Path('$OUT/tasks').iterdir()))"
