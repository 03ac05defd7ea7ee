# What the scripts of this folder share, beside the retriever's choices in ../settings.sh. Read by `source`.
OUT=${OUT:-examples/visual_awareness/understanding/out}
RETRIEVERS=minilm
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" # DATA, SEEDS, FULL, DEVICE, SIZE, LIMIT, JOBS, BERT
here=examples/visual_awareness/understanding
retriever_features=pooled # whatever SIZE: a photo is one vector here, as those of the data are
if [ "$FEATURES" != given ]; then
    echo "FEATURES should be given, those of the data's folder, but is '$FEATURES'." >&2
    exit 2
fi
FULL=${FULL:-}

case $SIZE in
small) NLI_UPDATES=${NLI_UPDATES:-560} NER_UPDATES=${NER_UPDATES:-880} tuning=(--lr 0.0001 --weight-decay 0.01 --batch-size 32) ;;
paper) NLI_UPDATES=${NLI_UPDATES:-51500} NER_UPDATES=${NER_UPDATES:-1300} tuning=(--lr 0.00002 --weight-decay 0.01 --batch-size 32) ;;
esac
