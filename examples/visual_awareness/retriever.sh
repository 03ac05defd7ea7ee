# A retriever for the recipes of this folder, trained on the captions of OUT/captions/data and the photos of
# OUT/features; read by `source`, after settings.sh.
train_retriever() { # NAME FLAGS…: OUT/retriever/NAME
    local name=$1
    shift
    run "retriever-$name" fairseq-train "$OUT/captions/data" --user-dir visual_grounding --task image_text_matching \
        --image-features "$OUT/features/$retriever_features.all" --arch visual_semantic_embedding \
        --criterion hardest_negative_triplet --triplet-direction both --optimizer adam --clip-norm 2 \
        --best-checkpoint-metric recall_sum --maximize-best-checkpoint-metric --no-epoch-checkpoints \
        --no-last-checkpoints --save-dir "$OUT/retriever-training/$name" --seed "$SEED" "${device[@]}" \
        "${retriever_model[@]}" "${retriever_optimiser[@]}" --log-format simple "$@"
    run "export-$name" visual-grounding export --checkpoint "$OUT/retriever-training/$name/checkpoint_best.pt" \
        --data "$OUT/captions/data" --out "$OUT/retriever/$name"
}
