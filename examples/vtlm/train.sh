#!/usr/bin/env bash
# Pre-trains the stream of text and regions, and fine-tunes and trains translators; a seed each. Choices: settings.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

images() { # KIND [STORE]: the flags of each row's own photo
    printf '%s\n' --image-features "$OUT/${2:-regions}" --image-ids "$OUT/ids/$1"
}

pretrain() { # SEED NAME DATA FLAGS…: OUT/seedS/pretrained/NAME
    local seed=$1 name=$2 data=$3
    shift 3
    run "seed$seed/pretrain-$name" fairseq-train "$OUT/bin/$data" --user-dir visual_grounding --task visual_tlm \
        --arch vtlm "${sizes[@]}" --criterion visual_tlm --optimizer adam "${pretraining[@]}" \
        --max-epoch "$PRETRAIN_EPOCHS" --best-checkpoint-metric word_accuracy --maximize-best-checkpoint-metric \
        --no-epoch-checkpoints --save-dir "$OUT/seed$seed/pretrained/$name" --seed "$seed" "${device[@]}" \
        --log-format simple "$@"
}

translator() { # SEED DATA KIND NAME FLAGS…: trained on DATA to translate KIND, OUT/seedS/translators/KIND/NAME
    local seed=$1 data=$2 kind=$3 name=$4 visual=()
    shift 4
    if [[ $name == *mmt* ]]; then mapfile -t visual < <(images "$data" "${STORE:-}"); fi
    run "seed$seed/train-$kind-$name" fairseq-train "$OUT/bin/$data" --user-dir visual_grounding \
        --task grounded_translation --arch vtlm_translation "${sizes[@]}" --criterion label_smoothed_cross_entropy \
        --label-smoothing "$SMOOTHING" --optimizer adam --no-epoch-checkpoints \
        --save-dir "$OUT/seed$seed/translators/$kind/$name" --seed "$seed" "${device[@]}" --log-format simple \
        "$@" "${visual[@]}"
}

finetune() { # SEED PRETRAINED NAME FLAGS…: on masked and on whole sources (KINDS); with their images where it's MMT
    local seed=$1 from=$OUT/seed$1/pretrained/$2/checkpoint_best.pt name=$3 kind
    shift 3
    for kind in ${KINDS:-masked plain}; do
        translator "$seed" $kind $kind "$name" "${finetuning[@]}" --max-epoch "$EPOCHS" --visual-pretrained "$from" "$@"
    done
}

# A lane is what has to be done one after another; two lanes run at once.
tlm() {
    pretrain "$1" tlm three-way
    finetune "$1" tlm tlm-nmt
    if [ -n "$FULL" ]; then finetune "$1" tlm tlm-mmt; fi
}
vtlm() {
    pretrain "$1" vtlm three-way $(images three-way)
    finetune "$1" vtlm vtlm-mmt
    if [ -n "$FULL" ]; then
        finetune "$1" vtlm vtlm-nmt
        KINDS=masked finetune "$1" vtlm vtlm-mmt-random --visual-random-cross-attention
    fi
}
# Other ways to pre-train: of masked sources alone, where images count.
unmasked() {
    pretrain "$1" unmasked three-way $(images three-way) --visual-unmasked
    KINDS=masked finetune "$1" unmasked unmasked-mmt
}
people() { # pre-trained on the rows that people translated alone
    pretrain "$1" people plain $(images plain) "${people_decay[@]}"
    KINDS=masked finetune "$1" people people-mmt
}
grid() { # cells of a grid with a classifier's labels, in place of a detector's regions
    pretrain "$1" grid three-way $(images three-way cells)
    STORE=cells KINDS=masked finetune "$1" grid grid-mmt
}
# What holds the gain back?
all_regions() { # also those that the detector is unsure of
    pretrain "$1" all-regions three-way $(images three-way all-regions)
    STORE=all-regions KINDS=masked finetune "$1" all-regions all-regions-mmt
}
narrow_tlm() { # models that are half as wide
    pretrain "$1" narrow-tlm three-way "${narrow[@]}"
    KINDS=masked finetune "$1" narrow-tlm narrow-nmt "${narrow[@]}"
}
narrow_vtlm() {
    pretrain "$1" narrow-vtlm three-way $(images three-way) "${narrow[@]}"
    KINDS=masked finetune "$1" narrow-vtlm narrow-mmt "${narrow[@]}"
}
short_tlm() { # half as many epochs of pre-training
    pretrain "$1" short-tlm three-way "${short[@]}"
    KINDS=masked finetune "$1" short-tlm short-nmt
}
short_vtlm() {
    pretrain "$1" short-vtlm three-way $(images three-way) "${short[@]}"
    KINDS=masked finetune "$1" short-vtlm short-mmt
}
scratch() { # without pre-training: on the rows that people translated, and with the captions that the model did
    local name kind
    for name in nmt mmt; do
        for kind in masked plain; do
            translator "$1" $kind $kind scratch-$name "${scratch[@]}" --max-epoch "$EPOCHS"
        done
        translator "$1" three-way plain synthetic-$name "${scratch[@]}" --max-epoch "$SYNTHETIC_EPOCHS"
    done
}

for seed in $(seq "$SEEDS"); do
    step "seed $seed"
    later tlm "$seed"
    later vtlm "$seed"
    if [ -n "$FULL" ]; then
        for lane in unmasked people grid scratch all_regions {narrow,short}_{tlm,vtlm}; do later $lane "$seed"; done
    fi
done
finish
