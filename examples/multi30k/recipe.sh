# What recipes on Multi30k's rows with photos are made of, beside ../steps.sh; read by `source`, after `here`, the recipe's
# folder, is set. First their own choices, each an environment variable, then the steps that all have.
TARGET_LANG=${TARGET_LANG:-de} # translate from English into de or fr
METEOR_JAR=${METEOR_JAR:-}     # METEOR's program; without it METEOR isn't computed
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh" # DATA, OUT, SEEDS, FULL, DEVICE, SIZE, LIMIT, JOBS
# A model that hardly learned anything doesn't end its sentences: on a slice, generation is cut short.
generation=(--max-tokens 4096)
if [ -n "$LIMIT" ]; then generation+=(--max-len-b 20); fi

unpack() { # OUT/photos: those of all splits
    local split
    mkdir -p "$OUT/photos"
    for split in train dev test; do tar -xf "$DATA/flickr8k/images/$split.tar" -C "$OUT/photos"; done
}

read_data() { # MASK: OUT/raw, sentences with the mask in place of nouns; OUT/regions, what a detector found
    if [ ! -d "$DATA/flickr8k" ]; then
        echo "DATA should be a folder with flickr8k/ in it, but is '$DATA'. Name yours: DATA=/path/to/data bash $here/run.sh" >&2
        exit 2
    fi
    step "rows with a photo, whole and with masked nouns; captions; all other rows as text"
    run data python examples/multi30k/with_photos.py --data "$DATA" --language "$TARGET_LANG" --mask "$1" \
        ${LIMIT:+--limit "$LIMIT"} --out "$OUT/raw"
    step "regions: what a detector found with a score of at least 0.3"
    import_regions regions 0.3
}
import_regions() { # STORE SCORE: OUT/STORE, what the detector found with at least this score
    run "$1" visual-grounding import --arrays "$DATA/flickr8k/regions/features.npy" --keys "$OUT/raw/photos.keys" \
        --boxes "$DATA/flickr8k/regions/boxes.npy" --labels "$DATA/flickr8k/regions/labels.npy" \
        --scores "$DATA/flickr8k/regions/scores.npy" --label-names "$DATA/flickr8k/regions/label_names.txt" \
        --min-score "$2" --made-by "DEIMv2-Femto, COCO" --out "$OUT/$1"
}

grid_cells() { # OUT/cells, in place of a detector's regions: 4 x 4 of each photo, and what a classifier takes them for
    local PYTHONPATH=examples${PYTHONPATH:+:$PYTHONPATH} # multi30k/mobilenet.py is a backbone from outside the package
    export PYTHONPATH
    run photos unpack
    run cells visual-grounding extract --images "$OUT/photos" --backbone multi30k.mobilenet:mobilenet \
        --weights "$DATA/flickr8k/weights/mobilenet_v1_0.25_224.safetensors" --region-source grid --grid 4 \
        --image-size 128 --device "$DEVICE" --out "$OUT/cells"
}

pair() { # KEYS TEXT IDS: the photo of each row, OUT/ids/IDS; KEYS is one of OUT/raw
    run "pair-${3//\//-}" visual-grounding retrieve --method paired --image-features "$OUT/regions" \
        --keys "$OUT/raw/$1.keys" --text "$2" --out "$OUT/ids/$3"
}

# translate SEED KIND SUBSET NAME ORDER: OUT/seedS/translations/KIND.SUBSET.NAME[.ORDER].txt, by the translator NAME of
# KIND. The recipe's function `visual_of KIND NAME ORDER` prints the flags of the images that it is to have, one a line.
translate() {
    local seed=$1 kind=$2 subset=$3 name=$4 order=$5 said=$2.$3.$4 visual
    mapfile -t visual < <(visual_of "$kind" "$name" "$order")
    if [ "$order" != congruent ]; then said+=.$order; fi
    run "seed$seed/translate-$said" fairseq-generate "$OUT/bin/$kind" --user-dir visual_grounding \
        --task grounded_translation --path "$OUT/seed$seed/translators/$kind/$name/checkpoint_best.pt" \
        --gen-subset "$subset" "${generation[@]}" --post-process subword_nmt "${device[@]}" "${visual[@]}"
    mkdir -p "$OUT/seed$seed/translations"
    cp "$OUT/logs/seed$seed/translate-$said.log" "$OUT/seed$seed/translations/$said.txt"
}

score() { # SEED KIND SUBSET NAME TWIN: OUT/seedS/scores/KIND.SUBSET.NAME.against.TWIN
    local translations=$OUT/seed$1/translations/$2.$3
    run "seed$1/score-$2.$3.$4.against.$5" visual-grounding evaluate --hypothesis "$translations.$4.txt" \
        --twin "$translations.$5.txt" --reference "$OUT/raw/$2/$3.$TARGET_LANG" --target-lang "$TARGET_LANG" \
        ${METEOR_JAR:+--meteor-jar "$METEOR_JAR"} --out "$OUT/seed$1/scores/$2.$3.$4.against.$5"
}

# evaluate_seeds OTHER…: every seed's translations and scores, the model of each kind against its twin, the others,
# against itself with another row's photos, and without any; OUT/table; OUT/claims, what the README's first sentence
# says; OUT/page. The recipe's function `pair_of KIND` prints the names of model and twin.
evaluate_seeds() {
    local model twin seed kind name runs=() rows=(--only)
    for seed in $(seq "$SEEDS"); do
        if [ "$seed" != 1 ]; then runs+=("$OUT/seed$seed/scores"); fi
        step "seed $seed: translate and score"
        for kind in masked plain; do later translate_kind "$seed" $kind $(pair_of $kind) "$@"; done
        finish
        for kind in masked plain; do later score_kind "$seed" $kind $(pair_of $kind) "$@"; done
        finish
    done
    for kind in masked plain; do
        read -r model twin < <(pair_of $kind)
        for name in "$twin" "$@" "$model.shuffled" "$model.blank"; do rows+=("$kind.*.$model.against.$name"); done
    done
    read -r model twin < <(pair_of masked)
    step "all seeds in one table: $OUT/table; the two rows that a claim is made of: $OUT/claims"
    visual-grounding report runs "$OUT/seed1/scores" "${runs[@]}" --metric tokenised_bleu "${rows[@]}" --out "$OUT/table"
    visual-grounding report runs "$OUT/seed1/scores" "${runs[@]}" --metric tokenised_bleu --out "$OUT/claims" \
        --only "masked.valid.$model.against.$twin" "masked.valid.$model.against.$model.shuffled"
    step "translations of seed 1 beside their photos: $OUT/page"
    run photos unpack
    for kind in masked plain; do
        read -r model twin < <(pair_of $kind)
        visual-grounding report --text "$OUT/raw/$kind/valid.en" --image-ids "$OUT/ids/$kind/valid" \
            --image-features "$OUT/regions" --images "$OUT/photos" --draw-regions --min-score 0.3 \
            --output reference="$OUT/raw/$kind/valid.$TARGET_LANG" \
            --output "$model=$OUT/seed1/translations/$kind.valid.$model.txt" \
            --output "$twin=$OUT/seed1/translations/$kind.valid.$twin.txt" --out "$OUT/page/$kind"
    done
}
translate_kind() { # SEED KIND MODEL TWIN OTHER…
    local seed=$1 kind=$2 model=$3 subset name order
    shift 2
    for subset in valid test; do
        for name in "$@"; do
            if trained_on "$kind" "$name"; then translate "$seed" $kind $subset "$name" congruent; fi
        done
        for order in shuffled blank; do translate "$seed" $kind $subset "$model" $order; done
    done
}
score_kind() { # SEED KIND MODEL TWIN OTHER…
    local seed=$1 kind=$2 model=$3 subset name
    shift 3
    for subset in valid test; do
        for name in "$@" "$model.shuffled" "$model.blank"; do
            if trained_on $kind "$name"; then score "$seed" $kind $subset "$model" "$name"; fi
        done
    done
}
trained_on() { true; } # KIND NAME: a recipe that doesn't train every row on both kinds says so in its own
