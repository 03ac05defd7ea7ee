#!/usr/bin/env bash
# VA Table 1, English -> Romanian, at the paper's settings. NOT RUN HERE.
#
#   TEXT       folder with {train,valid,test}.{en,ro}, tokenised: Europarl v7 + SETIMES2 of WMT16 (0.6M pairs),
#              newsdev2016, newstest2016
#   RETRIEVER  the OUT of full_coco_retriever.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/full_common.sh"
need TEXT d "the folder with the tokenised WMT16 text"
need RETRIEVER d "what full_coco_retriever.sh made"
OUT=${OUT:-examples/visual_awareness/out/wmt16_enro}
visual_aware_nmt ro
