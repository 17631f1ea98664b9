#!/bin/sh
# Makes a cluster in the directory $1, and loads the schema over port $2. The server is stopped at the end.
set -eu
bin=/usr/lib/postgresql/15/bin
as_postgres() { runuser -u postgres -- "$@"; }
as_postgres "$bin/initdb" -D "$1" --encoding UTF8 --locale C.UTF-8 --auth trust > /dev/null
# A fork is thrown away, or saved with its memory: nothing has to survive a power failure. Background work that
# writes pages on its own would only make every fork larger.
cat >> "$1/postgresql.conf" << 'END'
listen_addresses = '127.0.0.1'
unix_socket_directories = '/run/postgresql'
max_connections = 20
shared_buffers = 32MB
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
autovacuum = off
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1d
END
mkdir -p /run/postgresql
chown postgres:postgres /run/postgresql
as_postgres "$bin/pg_ctl" -D "$1" -o "-p $2" -l "$1/load.log" -w -t 120 start > /dev/null
as_postgres psql -p "$2" -q -v ON_ERROR_STOP=1 -c 'CREATE DATABASE app'
as_postgres psql -p "$2" -d app -q -v ON_ERROR_STOP=1 -f /opt/fixture/schema.sql
as_postgres "$bin/pg_ctl" -D "$1" -w -t 120 -m fast stop > /dev/null
