#!/usr/bin/env bash
# Everything: install, prepare, train, evaluate. About half an hour a seed on two CPU cores; choices are in settings.sh.
set -euo pipefail
folder=$(dirname "${BASH_SOURCE[0]}")
started=$SECONDS
bash "$folder/../../scripts/setup.sh"
bash "$folder/seeds.sh"
echo "done in $((SECONDS - started)) s"
