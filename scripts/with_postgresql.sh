#!/usr/bin/env bash
# Runs a command with a PostgreSQL of its own, in a temporary folder, reached by TILEWISE_TEST_POSTGRESQL:
#   scripts/with_postgresql.sh pytest -n 2
# Needs PostgreSQL's server programs (Debian: postgresql); as root they run as the user "postgres".
set -euo pipefail
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
initdb=$(command -v initdb || echo "$programs/initdb")
if [ ! -x "$initdb" ]; then
  echo "PostgreSQL's initdb is not installed (Debian: apt-get install postgresql)" >&2
  exit 2
fi
programs=$(dirname "$initdb")
folder=$(mktemp -d)
as=()
if [ "$(id -u)" = 0 ]; then
  as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
  chown postgres "$folder"
fi
cleanup() {
  "${as[@]}" "$programs/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap cleanup EXIT
cd "$folder"
"${as[@]}" "$programs/initdb" -D "$folder/data" -A trust -U tilewise -E UTF8 --no-sync >/dev/null
"${as[@]}" "$programs/pg_ctl" -D "$folder/data" -w -l "$folder/log" \
  -o "-c listen_addresses='' -c unix_socket_directories='$folder' -c max_connections=200" start >/dev/null
export TILEWISE_TEST_POSTGRESQL="postgresql://tilewise@/postgres?host=$folder"
cd "$OLDPWD"
"$@"
