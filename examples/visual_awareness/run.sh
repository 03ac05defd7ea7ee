#!/usr/bin/env bash
# Everything: install, prepare, train, evaluate. 31 minutes on two idle CPU cores; choices are in settings.sh.
set -euo pipefail
folder=$(dirname "${BASH_SOURCE[0]}")
started=$SECONDS
bash "$folder/../../scripts/setup.sh"
for part in prepare train evaluate; do bash "$folder/$part.sh"; done
echo "done in $((SECONDS - started)) s"
