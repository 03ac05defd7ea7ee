# What recipes on Multi30k's rows with photos are made of; read by `source`, after `here`, the recipe's folder, is set.
#
#   run NAME COMMAND…     once: a rerun skips what was done, by the same command; what it says is in OUT/logs/NAME.log
#   later COMMAND…        beside the next ones, at most JOBS at a time (a command of the shell: run, or a function)
#   finish                waits for all of them
#   step TEXT             says what comes
#
# A command that was stopped is given again: fairseq-train goes on from its last checkpoint, visual-grounding's verbs
# from what they finished. Below are the choices of every recipe, each an environment variable, and at the end the steps
# that all have.
DATA=${DATA:-${VISUAL_GROUNDING_DATA:-../shared/data}} # holds flickr8k/ and downstream/multi30k_masking/
OUT=${OUT:-$here/out}
TARGET_LANG=${TARGET_LANG:-de} # translate from English into de or fr
SEEDS=${SEEDS:-1}              # models of each kind that is trained: seeds 1 to SEEDS
FULL=${FULL:-}                 # any word: all rows of the README, not only the default ones
DEVICE=${DEVICE:-cpu}          # cpu, or cuda
SIZE=${SIZE:-small}            # small: two CPU cores; paper: the paper's sizes, for a GPU
LIMIT=${LIMIT:-}               # rows of each file to keep, to try the recipe
METEOR_JAR=${METEOR_JAR:-}     # METEOR's program; without it METEOR isn't computed
JOBS=${JOBS:-2}                # commands at a time
for choice in SEEDS JOBS ${LIMIT:+LIMIT}; do
    if [[ ! ${!choice} =~ ^[1-9][0-9]*$ ]]; then
        echo "$choice should be a whole number from 1 on, but is '${!choice}'." >&2
        exit 2
    fi
done
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
# On processors that aren't Intel's MKL, which multiplies matrices for torch, keeps to slow kernels. Told that this is one
# it makes VLP's trainings 1.8 times as fast on an AMD EPYC, VTLM's 1.4 times, in the same precision.
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
if [ "$DEVICE" = cpu ] && [ -z "${LD_PRELOAD:-}" ] && grep -q AuthenticAMD /proc/cpuinfo 2>/dev/null &&
    echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | cc -shared -fPIC -x c -o "$temporary/mkl.so" - 2>/dev/null; then
    export LD_PRELOAD=$temporary/mkl.so
fi
device=(--cpu)
if [ "$DEVICE" = cuda ]; then device=(--fp16); fi
# A model that hardly learned anything doesn't end its sentences: on a slice, generation is cut short.
generation=(--max-tokens 4096)
if [ -n "$LIMIT" ]; then generation+=(--max-len-b 20); fi

step() { printf '[%s] %s\n' "$(date +%T)" "$*"; }

run() {
    local name=$1 said log done
    shift
    said=$(printf '%q ' "$@")
    log=$OUT/logs/$name.log done=$OUT/done/$name
    mkdir -p "$(dirname "$log")" "$(dirname "$done")"
    if [ -f "$done" ]; then
        if [ "$(tail -n +2 "$done")" = "$said" ]; then return 0; fi
        printf 'OUT=%s was made with other settings: there %s was\n  %s\nbut now it is\n  %s\nGive these settings an OUT of their own.\n' \
            "$OUT" "$name" "$(tail -n +2 "$done")" "$said" >&2
        return 2
    fi
    # Training goes on where it was stopped, and so does its log; whatever else is run begins anew.
    if [ "$1" != fairseq-train ]; then : >"$log"; fi
    local started=$SECONDS failed
    # Outside of any condition: in one, bash lets a function go on behind a command in it that failed.
    set +e
    (set -e; "$@") >>"$log" 2>&1
    failed=$?
    set -e
    if [ $failed != 0 ]; then
        tail -n 25 "$log" >&2
        echo "This failed; the whole log is in $log" >&2
        return 1
    fi
    printf '%s s\n%s' $((SECONDS - started)) "$said" >"$done.new"
    mv "$done.new" "$done"
}

# A lane that succeeds says so in a file: in hours the system gives its number to another process, and bash then no
# longer knows how it ended.
lanes=0 succeeded=$temporary/succeeded
touch "$succeeded"
later() {
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do sleep 1; done
    lanes=$((lanes + 1))
    { "$@"; echo yes >>"$succeeded"; } &
}
finish() {
    wait
    if [ "$(wc -l <"$succeeded")" -ne "$lanes" ]; then
        echo "Not all of it was done; given again, the same command goes on." >&2
        exit 1
    fi
}

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

pair() { # KEYS TEXT IDS: the photo of each row, OUT/ids/IDS; KEYS is one of OUT/raw
    run "pair-${3//\//-}" visual-grounding retrieve --method paired --image-features "$OUT/regions" \
        --keys "$OUT/raw/$1.keys" --text "$2" -n 1 --out "$OUT/ids/$3"
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
