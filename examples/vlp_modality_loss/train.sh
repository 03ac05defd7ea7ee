#!/usr/bin/env bash
# The six steps of Algorithm 1, the text-only rows and the ablations; a seed each; Fig. 3. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

images() { printf '%s\n' --image-features "$OUT/${STORE:-regions}" --image-ids "$OUT/ids/$1"; } # each row's own photo
tags() { printf '%s\n' --image-tags "$BERT"; }                                                   # and its labels as words

pretrain() { # SEED NAME DATA EPOCHS FLAGS…: OUT/seedS/pretrained/NAME
    local seed=$1 name=$2 data=$3 epochs=$4
    shift 4
    run "seed$seed/pretrain-$name" fairseq-train "$OUT/bin/$data" --user-dir visual_grounding \
        --task vision_language_pretraining --arch vlp_bert --criterion masked_lm_with_paired_image \
        --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.01 --clip-norm 1 "${pretraining[@]}" \
        --max-epoch "$epochs" --no-epoch-checkpoints --save-dir "$OUT/seed$seed/pretrained/$name" --seed "$seed" \
        "${device[@]}" --log-format simple "$@"
}

translator() { # SEED KIND NAME FLAGS…: OUT/seedS/translators/KIND/NAME
    local seed=$1 kind=$2 name=$3 bleu=()
    shift 3
    # Fig. 3 is drawn of the development rows' BLEU in the log.
    if [[ $name = learned-last-* ]]; then
        bleu=(--eval-bleu --eval-bleu-remove-bpe --eval-bleu-args '{"beam": 1, "max_len_a": 1.2, "max_len_b": 10}')
    fi
    run "seed$seed/train-$kind-$name" fairseq-train "$OUT/bin/$kind" --user-dir visual_grounding \
        --task grounded_translation --optimizer adam --adam-betas '(0.9, 0.98)' \
        --no-epoch-checkpoints --save-dir "$OUT/seed$seed/translators/$kind/$name" --seed "$seed" \
        "${bleu[@]}" "${device[@]}" --log-format simple "$@"
}

# Steps 5 and 6: first with the encoder as it is, then everything, from the best checkpoint of the first. The second
# takes twice as long as the first: of whole sources, where photos say little, it is left to --full.
two_stages() { # SEED KIND NAME FLAGS…: what the first stage starts from is in `start`
    first_stage "$@"
    if [ "$2" = plain ] && [ -z "$FULL" ]; then return; fi
    second_stage "$@"
}
first_stage() { # SEED KIND NAME FLAGS…
    local seed=$1 kind=$2 name=$3 visual=()
    shift 3
    if [[ $name != bert-enc* ]]; then mapfile -t visual < <(images "$kind"; tags); fi
    translator "$seed" "$kind" "$name-1" --arch vlp_translation "${decoder[@]}" "$@" \
        "${visual[@]}" --visual-freeze-encoder "${start[@]}" "${stage1[@]}" --max-epoch "$STAGE1_EPOCHS"
}
second_stage() { # SEED KIND NAME FLAGS…
    local seed=$1 kind=$2 name=$3 visual=()
    shift 3
    if [[ $name != bert-enc* ]]; then mapfile -t visual < <(images "$kind"; tags); fi
    translator "$seed" "$kind" "$name-2" --arch vlp_translation "${decoder[@]}" "$@" \
        "${visual[@]}" --finetune-from-model "$OUT/seed$seed/translators/$kind/$name-1/checkpoint_best.pt" \
        "${stage2[@]}" --max-epoch "$STAGE2_EPOCHS"
}
without=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1)
modality=(--criterion label_smoothed_cross_entropy_with_modality_loss --label-smoothing 0.1)

steps_1_to_4() { # SEED [PREFIX]: BERT, then captions with their photos, then the rows' own sources
    local visual before=${2:-}
    mapfile -t visual < <(images captions; tags)
    pretrain "$1" "${before}captions" captions "$PRETRAIN_EPOCHS" --bert "$BERT" "${visual[@]}"
    mapfile -t visual < <(images plain; tags)
    pretrain "$1" "${before}sources" sources "$CONTINUE_EPOCHS" "${visual[@]}" \
        --finetune-from-model "$OUT/seed$1/pretrained/${before}captions/checkpoint_best.pt"
}
ours() { # SEED KIND: the loss with a weight that is learned for each token, in the last layer, is the paper's best
    # Its ablations are of masked sources, where images count; other weights and layers after the first stage, in which
    # the decoder learns to look.
    local start=(--visual-pretrained "$OUT/seed$1/pretrained/sources/checkpoint_best.pt") visual
    two_stages "$1" "$2" learned-last "${modality[@]}"
    if [ -n "$FULL" ] && [ "$2" = masked ]; then
        two_stages "$1" "$2" no-loss "${without[@]}"
        first_stage "$1" "$2" fixed-last "${modality[@]}" --modality-weight 0.4
        first_stage "$1" "$2" learned-all "${modality[@]}" --modality-layers all
        mapfile -t visual < <(images "$2"; tags)
        translator "$1" "$2" end-to-end --arch vlp_translation "${decoder[@]}" "${without[@]}" \
            "${visual[@]}" "${start[@]}" "${end_to_end[@]}" --max-epoch $((STAGE1_EPOCHS + STAGE2_EPOCHS))
    fi
}
grid() { # SEED: cells of a grid with a classifier's labels, in place of a detector's regions
    STORE=cells steps_1_to_4 "$1" grid-
    local start=(--visual-pretrained "$OUT/seed$1/pretrained/grid-sources/checkpoint_best.pt")
    STORE=cells first_stage "$1" masked grid "${modality[@]}"
}
bert_enc() { # SEED KIND: text alone
    local start=(--bert "$BERT")
    two_stages "$1" "$2" bert-enc "${without[@]}"
}
transformers() { # SEED KIND: without BERT, from text alone and with VA's attention to the same regions
    local visual
    mapfile -t visual < <(images "$2")
    translator "$1" "$2" text-only --arch text_only_transformer "${transformer[@]}" "${without[@]}" \
        --max-epoch "$TRANSFORMER_EPOCHS"
    translator "$1" "$2" visual-aware --arch visual_aware_transformer "${transformer[@]}" "${without[@]}" \
        --max-epoch "$TRANSFORMER_EPOCHS" "${visual[@]}"
}

for seed in $(seq "$SEEDS"); do
    step "seed $seed: steps 1 to 4, pre-training; beside it the text-only rows"
    later steps_1_to_4 "$seed"
    for kind in masked plain; do later bert_enc "$seed" $kind; done
    finish
    step "seed $seed: steps 5 and 6, translation in two stages"
    for kind in masked plain; do later ours "$seed" $kind; done
    if [ -n "$FULL" ]; then
        later grid "$seed"
        for kind in masked plain; do later transformers "$seed" $kind; done
    fi
    finish
done
step "BLEU of the development rows over both stages: OUT/figure3.png"
python $here/figure3.py --logs "$OUT/logs/seed1" --model learned-last --kinds masked ${FULL:+plain} --out "$OUT/figure3.png"
