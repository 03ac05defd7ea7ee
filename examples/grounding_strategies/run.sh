#!/usr/bin/env bash
# Everything: install, prepare, train, evaluate. --full: every row of the README. Choices: settings.sh.
set -euo pipefail
folder=$(dirname "${BASH_SOURCE[0]}")
bash "$folder/../run.sh" "$folder" "$@"
