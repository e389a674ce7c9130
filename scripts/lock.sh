#!/usr/bin/env bash
# Writes what the image installs: deploy/requirements.lock, each version with its hashes, and deploy/sbom.cdx.json, the same as a
# CycloneDX bill of materials. Run it to take newer versions; tests/packaging/test_supply_chain.py says when it must be.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet uv cyclonedx-bom
"$work/venv/bin/uv" pip compile pyproject.toml --quiet --upgrade --extra service --extra otel --python-version 3.12 \
  --python-platform x86_64-manylinux_2_28 --generate-hashes --no-header --no-emit-index-url -o deploy/requirements.lock
"$work/venv/bin/cyclonedx-py" requirements deploy/requirements.lock --output-reproducible -o deploy/sbom.cdx.json
