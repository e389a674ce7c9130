#!/usr/bin/env bash
# Looks every installed dependency of the server up in the advisory databases: 0 none is known to be vulnerable,
# 1 some are, or some could not be looked up. Run it weekly, not as a gate: an advisory is nobody's merge.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/server" && "$work/server/bin/pip" install --quiet '.[service,otel]'
"${PYTHON:-python3}" -m venv "$work/audit" && "$work/audit/bin/pip" install --quiet pip-audit
"$work/server/bin/pip" freeze --exclude tilewise > "$work/installed.txt"
"$work/audit/bin/pip-audit" --strict --no-deps --disable-pip -r "$work/installed.txt"
