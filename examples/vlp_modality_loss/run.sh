#!/usr/bin/env bash
# Everything: install, prepare, train, evaluate. --full: every row of the README. Choices are in settings.sh.
set -euo pipefail
folder=$(dirname "${BASH_SOURCE[0]}")
case ${1:-} in
'') ;;
--full) export FULL=yes ;;
*) echo "usage: $0 [--full]" >&2; exit 2 ;;
esac
bash "$folder/../../scripts/setup.sh"
for part in prepare train evaluate; do bash "$folder/$part.sh"; done
