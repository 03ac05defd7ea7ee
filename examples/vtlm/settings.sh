# What the scripts of this folder share: sizes of models and trainings. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/vtlm
source examples/multi30k/recipe.sh # DATA, OUT, TARGET_LANG, SEEDS, FULL, DEVICE, SIZE, LIMIT, METEOR_JAR, JOBS
MASK='<mask>'                      # the symbol that pre-training masks with stands for a hidden noun, too

case $SIZE in
small)
    SMOOTHING=0.1 # the paper has none; its models see a hundred times as many pairs
    TEXT_EPOCHS=${TEXT_EPOCHS:-10} MERGES=${MERGES:-4000} PRETRAIN_EPOCHS=${PRETRAIN_EPOCHS:-10} EPOCHS=${EPOCHS:-20} SYNTHETIC_EPOCHS=${SYNTHETIC_EPOCHS:-6}
    translator=(--encoder-layers 3 --decoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0.3 --lr 0.003 --warmup-updates 500 --max-tokens 2048)
    # One size for all models: pre-trained, fine-tuned, from scratch, and twins.
    sizes=(--encoder-layers 3 --decoder-layers 3 --encoder-embed-dim 128 --decoder-embed-dim 128
        --encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512 --encoder-attention-heads 4 --decoder-attention-heads 4)
    # The learning rate falls to 0 in a straight line: 33,564 pairs are 1,051 batches an epoch, 5,199 rows are 185.
    pretraining=(--lr 0.001 --lr-scheduler polynomial_decay --total-num-update $((1051 * PRETRAIN_EPOCHS)) --warmup-updates 600 --batch-size 32
        --dropout 0.1 --mask-prob 0.4 --region-loss-weight 0.1)
    people_decay=(--total-num-update $((163 * PRETRAIN_EPOCHS))) # of the rows by people alone
    # Later flags win: half as wide, and pre-trained half as long.
    narrow=(--encoder-embed-dim 64 --decoder-embed-dim 64 --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256)
    short=(--max-epoch $(((PRETRAIN_EPOCHS + 1) / 2)) --total-num-update $((1051 * PRETRAIN_EPOCHS / 2)))
    finetuning=(--lr 0.0008 --lr-scheduler polynomial_decay --total-num-update $((185 * EPOCHS)) --warmup-updates 400 --max-tokens 512 --dropout 0.3)
    scratch=(--lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 400 --max-tokens 1024 --dropout 0.3)
    ;;
paper)
    SMOOTHING=0
    sizes=() people_decay=()
    narrow=(--encoder-embed-dim 256 --decoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --decoder-ffn-embed-dim 1024)
    pretraining=(--lr 0.0001 --lr-scheduler fixed --batch-size 64 --dropout 0.1 --clip-norm 5)
    finetuning=(--lr 0.00001 --lr-scheduler fixed --batch-size 64 --dropout 0.2)
    scratch=(--lr 0.0001 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-07 --batch-size 64 --dropout 0.4
        --adam-betas '(0.9, 0.98)')
    PRETRAIN_EPOCHS=${PRETRAIN_EPOCHS:-2800} EPOCHS=${EPOCHS:-100} SYNTHETIC_EPOCHS=${SYNTHETIC_EPOCHS:-100} # 1.5 million updates of these rows
    short=(--max-epoch $(((PRETRAIN_EPOCHS + 1) / 2)))
    translator=(--encoder-layers 6 --decoder-layers 6 --encoder-embed-dim 512 --encoder-ffn-embed-dim 2048
        --encoder-attention-heads 8 --decoder-attention-heads 8 --dropout 0.1 --lr 0.0007 --warmup-updates 8000 --max-tokens 16384)
    TEXT_EPOCHS=${TEXT_EPOCHS:-100} MERGES=${MERGES:-50000}
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
generation+=(--beam 8)
