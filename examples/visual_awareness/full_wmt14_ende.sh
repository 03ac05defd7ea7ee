#!/usr/bin/env bash
# VA Table 1, English -> German, at the paper's settings. NOT RUN HERE.
#
#   TEXT       folder with {train,valid,test}.{en,de}, tokenised: Common Crawl, News Commentary and Europarl v7 of
#              WMT14 (4.43M pairs), newstest2013, newstest2014
#   RETRIEVER  the OUT of full_coco_retriever.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/full_common.sh"
need TEXT d "the folder with the tokenised WMT14 text"
need RETRIEVER d "what full_coco_retriever.sh made"
OUT=${OUT:-examples/visual_awareness/out/wmt14_ende}
visual_aware_nmt de
