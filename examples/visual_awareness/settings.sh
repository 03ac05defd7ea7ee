# What the scripts of this folder share: choices with defaults, each an environment variable. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/visual_awareness
TARGET_LANG=${TARGET_LANG:-de} # translate from English into de or fr
SEED=${SEED:-1}                # where SEEDS is 1; else run.sh trains everything with each of 1 to SEEDS, in OUT/seedN
FEATURES=${FEATURES:-given}    # given: those of the data folder; extract: BACKBONE with WEIGHTS on the photos there
BACKBONE=${BACKBONE:-resnet152}
WEIGHTS=${WEIGHTS:-}           # a state_dict file; without it torchvision downloads its own
# Text encoders to train: sru or bag (words learned from scratch), minilm (pretrained, frozen). The last finds the images.
RETRIEVERS=${RETRIEVERS:-minilm bag}
source examples/steps.sh # DATA, OUT, SEEDS, DEVICE, SIZE, LIMIT, JOBS

case $SIZE in
small)
    model=(--encoder-layers 3 --decoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0.3)
    optimiser=(--lr 0.003 --warmup-updates 500 --max-tokens 2048)
    masked_optimiser=(--lr 0.003 --warmup-updates 400 --max-tokens 1024)
    retriever_epochs=${RETRIEVER_EPOCHS:-8}
    retriever_features=pooled text_dropout=0.3 GRID=${GRID:-4}
    retriever_model=(--joint-size 1024 --text-embed-size 300 --sru-layers 1 --joint-batch-norm --image-dropout 0.5)
    # The learning rate falls to 0 in a straight line: 28,365 captions are 222 batches an epoch.
    retriever_optimiser=(--batch-size 128 --lr 0.002 --lr-scheduler polynomial_decay
        --total-num-update $((222 * retriever_epochs)) --max-epoch "$retriever_epochs")
    EPOCHS=${EPOCHS:-10} MASKED_EPOCHS=${MASKED_EPOCHS:-20} MERGES=${MERGES:-4000}
    ;;
paper)
    model=(--encoder-layers 6 --decoder-layers 6 --encoder-embed-dim 512 --encoder-ffn-embed-dim 2048
        --encoder-attention-heads 8 --decoder-attention-heads 8 --dropout 0.1 --attention-dropout 0.1)
    optimiser=(--lr 0.0007 --warmup-updates 8000 --max-tokens 4096 --update-freq 4)
    masked_optimiser=("${optimiser[@]}")
    retriever_epochs=${RETRIEVER_EPOCHS:-60}
    retriever_features=grid text_dropout=0.25 GRID=${GRID:-} # the network's own map, as the retriever of the paper
    retriever_model=(--joint-size 2400 --text-embed-size 620 --sru-layers 4 --image-dropout 0.5)
    retriever_optimiser=(--batch-size 160 --lr 0.001,0.0005,0.00025,0.000125,0.0000625,0.00003125
        --max-epoch "$retriever_epochs")
    EPOCHS=${EPOCHS:-100} MASKED_EPOCHS=${MASKED_EPOCHS:-300} MERGES=${MERGES:-10000}
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
# A model that hardly learned anything doesn't end its sentences: on a slice, generation is cut short.
generation=(--beam 5 --max-tokens 4096)
if [ -n "$LIMIT" ]; then generation+=(--max-len-b 20); fi
if [[ " $RETRIEVERS " == *" minilm "* ]]; then find_bert; fi
