# Does of what the image of PostgreSQL does what contrib/compose asks for.
set -eu
data=/var/lib/postgresql/data
bin=$(echo /usr/lib/postgresql/*/bin)
install --directory --owner=postgres --mode=0700 "$data"
as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
    password=$(mktemp)
    cat "$POSTGRES_PASSWORD_FILE" >"$password"
    chown postgres "$password"
    as "$bin/initdb" --pgdata="$data" --username="$POSTGRES_USER" --encoding=UTF8 --locale=C.UTF-8 \
        --auth=scram-sha-256 --pwfile="$password" >/dev/null
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    as "$bin/postgres" --single -D "$data" postgres >/dev/null <<SQL
CREATE DATABASE $POSTGRES_DB
SQL
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups \
    "$bin/postgres" -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
