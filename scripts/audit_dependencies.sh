#!/usr/bin/env bash
# Looks every dependency of the server's image (deploy/requirements.lock) up in the advisory databases: 0 none is known to be
# vulnerable, 1 some are, or some could not be looked up; 0 with "not run" where no database can be reached. Run it weekly, not as a gate: an advisory is nobody's merge.
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
"${PYTHON:-python3}" -m venv "$work/audit"
grep -oE '^[A-Za-z0-9._-]+==[^ ;]+' deploy/requirements.lock > "$work/installed.txt"
if [ -n "$advisories" ]; then
  "$work/audit/bin/pip" install --quiet packaging pyyaml
  "$work/audit/bin/python" scripts/check_advisories.py "$work/installed.txt" "$advisories"
elif ! "$work/audit/bin/python" -c "import urllib.request; urllib.request.urlopen('https://api.osv.dev', timeout=10)" 2>/dev/null &&
  ! "$work/audit/bin/python" -c "import urllib.request; urllib.request.urlopen('https://pypi.org/pypi/pip/json', timeout=10)" 2>/dev/null; then
  echo "advisories: not run, since no database of advisories can be reached"
else
  "$work/audit/bin/pip" install --quiet pip-audit
  "$work/audit/bin/pip-audit" --strict --no-deps --disable-pip -r "$work/installed.txt"
fi
