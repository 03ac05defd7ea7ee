# What the recipes at the papers' full settings share. Read by `source`. NOT RUN HERE: they need GPUs and large corpora.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"

# need VARIABLE KIND WHAT: stops unless the variable names something that exists.
need() {
    local value=${!1:-}
    if [ -z "$value" ] || ! [ "-$2" "$value" ]; then
        echo "$1 should name $3, but is '$value'. Give it: $1=/path/to/it bash $0" >&2
        exit 2
    fi
}

need_text() { # FOLDER SPLIT LANGUAGE…: tokenised text, one sentence a line
    local folder=$1 split=$2 language
    shift 2
    for language in "$@"; do
        if [ ! -f "$folder/$split.$language" ]; then
            echo "TEXT=$folder should hold $split.$language, tokenised, one sentence a line, but doesn't." >&2
            exit 2
        fi
    done
}

# visual_aware_nmt TARGET: VA §4.2 on $TEXT/{train,valid,test}.{en,TARGET}, with images of the COCO retriever.
visual_aware_nmt() {
    local target=$1 split side
    for split in train valid test; do need_text "$TEXT" $split en "$target"; done
    mkdir -p "$OUT/bpe"
    cat "$TEXT/train.en" "$TEXT/train.$target" >"$OUT/bpe/training"
    subword-nmt learn-bpe -s 40000 -i "$OUT/bpe/training" -o "$OUT/bpe/codes"
    for split in train valid test; do
        for side in en "$target"; do
            subword-nmt apply-bpe -c "$OUT/bpe/codes" -i "$TEXT/$split.$side" -o "$OUT/bpe/$split.$side"
        done
        visual-grounding retrieve --method dense --retriever "$RETRIEVER/retriever" --index "$RETRIEVER/index" \
            --text "$TEXT/$split.en" -n 8 --device cuda --out "$OUT/ids/$split"
    done
    fairseq-preprocess --source-lang en --target-lang "$target" --trainpref "$OUT/bpe/train" \
        --validpref "$OUT/bpe/valid" --testpref "$OUT/bpe/test" --joined-dictionary --workers 16 --destdir "$OUT/bin"

    local images=(--image-features "$RETRIEVER/features/pooled" --image-ids "$OUT/ids")
    train text-only --arch text_only_transformer
    train visual-aware --arch visual_aware_transformer "${images[@]}"
    translate text-only
    translate visual-aware "${images[@]}"
    visual-grounding evaluate --hypothesis "$OUT/visual-aware.txt" --twin "$OUT/text-only.txt" \
        --reference "$TEXT/test.$target" --target-lang "$target" --out "$OUT/scores"
}

# 4096 x 4 tokens a batch (--update-freq 4 on one GPU, 1 on four), warm-up 8,000, all dropouts and smoothing 0.1.
# Assumption: the paper names neither learning rate nor number of updates; these are those of transformer base.
train() {
    local name=$1
    shift
    fairseq-train "$OUT/bin" --user-dir visual_grounding --task grounded_translation --share-all-embeddings \
        --encoder-layers 6 --decoder-layers 6 --encoder-embed-dim 512 --encoder-ffn-embed-dim 2048 \
        --encoder-attention-heads 8 --decoder-attention-heads 8 --dropout 0.1 --attention-dropout 0.1 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' \
        --lr 0.0007 --lr-scheduler inverse_sqrt --warmup-updates 8000 --max-tokens 4096 --update-freq 4 \
        --max-update "${UPDATES:-100000}" --keep-last-epochs 10 --fp16 --save-dir "$OUT/$name" --seed 1 "$@"
    visual-grounding average --checkpoint-dir "$OUT/$name" --last "${AVERAGE:-5}" --out "$OUT/$name-averaged"
}

translate() {
    local name=$1
    shift
    fairseq-generate "$OUT/bin" --user-dir visual_grounding --task grounded_translation \
        --path "$OUT/$name-averaged/averaged.pt" --beam 4 --lenpen 0.6 --max-tokens 8192 --fp16 \
        --post-process subword_nmt "$@" >"$OUT/$name.txt"
}
