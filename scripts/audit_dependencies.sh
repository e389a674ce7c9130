#!/usr/bin/env bash
# Looks every installed dependency of the server up in the advisory databases: 0 none is known to be vulnerable,
# 1 some are, or some could not be looked up. Run it weekly, not as a gate: an advisory is nobody's merge.
#   scripts/audit_dependencies.sh                     asks the services that pip-audit knows
#   scripts/audit_dependencies.sh --advisories DIR    without a network: DIR is a clone of github.com/pypa/advisory-database
set -euo pipefail
cd "$(dirname "$0")/.."
advisories=
if [ "${1:-}" = --advisories ]; then
  advisories=$(realpath "$2")
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/server" && "$work/server/bin/pip" install --quiet '.[service,otel]'
"${PYTHON:-python3}" -m venv "$work/audit"
"$work/server/bin/pip" freeze --exclude tilewise > "$work/installed.txt"
if [ -n "$advisories" ]; then
  "$work/audit/bin/pip" install --quiet packaging pyyaml
  "$work/audit/bin/python" scripts/check_advisories.py "$work/installed.txt" "$advisories"
else
  "$work/audit/bin/pip" install --quiet pip-audit
  "$work/audit/bin/pip-audit" --strict --no-deps --disable-pip -r "$work/installed.txt"
fi
