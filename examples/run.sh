#!/usr/bin/env bash
# Installs, prepares, trains and evaluates a recipe: examples/vtlm/run.sh and the like call it with their folder.
set -euo pipefail
folder=$1
case ${2:-} in
'') ;;
--full) export FULL=yes ;;
*) echo "usage: $folder/run.sh [--full]" >&2; exit 2 ;;
esac
bash "$(dirname "${BASH_SOURCE[0]}")/../scripts/setup.sh"
for part in prepare train evaluate; do bash "$folder/$part.sh"; done
