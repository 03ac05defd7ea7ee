# What the scripts of this folder share: BERT, sizes of models and trainings. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/vlp_modality_loss
source examples/multi30k/recipe.sh # DATA, OUT, TARGET_LANG, SEEDS, FULL, DEVICE, SIZE, LIMIT, METEOR_JAR, JOBS

find_bert
case $SIZE in
small)
    PRETRAIN_EPOCHS=${PRETRAIN_EPOCHS:-2} CONTINUE_EPOCHS=${CONTINUE_EPOCHS:-2} STAGE1_EPOCHS=${STAGE1_EPOCHS:-8} STAGE2_EPOCHS=${STAGE2_EPOCHS:-8}
    decoder=(--decoder-layers 3 --decoder-embed-dim 256 --decoder-ffn-embed-dim 512 --decoder-attention-heads 4)
    pretraining=(--lr 0.0002 --lr-scheduler inverse_sqrt --warmup-updates 100 --batch-size 64)
    stage1=(--lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 200 --max-tokens 1024 --dropout 0.3)
    stage2=(--lr 0.00015 --lr-scheduler polynomial_decay --total-num-update $((90 * STAGE2_EPOCHS)) --warmup-updates 100 --max-tokens 1024 --dropout 0.3)
    end_to_end=(--lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 200 --max-tokens 1024 --dropout 0.3)
    # The plain transformer and VA's, without BERT.
    transformer=(--encoder-layers 3 --decoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --decoder-attention-heads 4 --share-decoder-input-output-embed
        --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 400 --max-tokens 1024 --dropout 0.3)
    TRANSFORMER_EPOCHS=${TRANSFORMER_EPOCHS:-20}
    ;;
paper)
    decoder=()
    pretraining=(--lr 0.0001 --lr-scheduler inverse_sqrt --warmup-updates 1000 --batch-size 64)
    stage1=(--lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 2000 --max-tokens 4096 --dropout 0.3 --patience 10)
    stage2=(--lr 0.00005 --lr-scheduler inverse_sqrt --warmup-updates 500 --max-tokens 4096 --dropout 0.3 --patience 10)
    end_to_end=(--lr 0.0001 --lr-scheduler inverse_sqrt --warmup-updates 2000 --max-tokens 4096 --dropout 0.3 --patience 10)
    transformer=(--share-decoder-input-output-embed --lr 0.0007 --lr-scheduler inverse_sqrt --warmup-updates 4000 --max-tokens 4096 --dropout 0.3)
    PRETRAIN_EPOCHS=${PRETRAIN_EPOCHS:-20} CONTINUE_EPOCHS=${CONTINUE_EPOCHS:-10} STAGE1_EPOCHS=${STAGE1_EPOCHS:-100} STAGE2_EPOCHS=${STAGE2_EPOCHS:-100}
    TRANSFORMER_EPOCHS=${TRANSFORMER_EPOCHS:-100}
    ;;
*)
    echo "SIZE should be small or paper, but is '$SIZE'." >&2
    exit 2
    ;;
esac
generation+=(--beam 5)
