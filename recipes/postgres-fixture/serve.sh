#!/bin/sh
# Runs the server of the cluster in $1 on port $2, in the foreground.
set -eu
mkdir -p /run/postgresql
chown postgres:postgres /run/postgresql
exec runuser -u postgres -- /usr/lib/postgresql/15/bin/postgres -D "$1" -p "$2"
