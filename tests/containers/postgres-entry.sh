# As the image of PostgreSQL starts it, as far as deploy/compose.yaml goes.
set -e
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA" /var/run/postgresql
  chown -R postgres "$PGDATA" /var/run/postgresql
  chmod 700 "$PGDATA"
  exec setpriv --reuid=postgres --regid=postgres --init-groups sh "$0"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
  initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=trust -E UTF8 --locale=C.UTF-8 --no-sync > /dev/null
  rm /tmp/password
  # From this host anybody, as there; from others with the password.
  printf 'local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all all scram-sha-256\n' > "$PGDATA/pg_hba.conf"
  echo "create database \"$POSTGRES_USER\"" | postgres --single -D "$PGDATA" -j postgres > /dev/null
fi
exec postgres -D "$PGDATA" -c listen_addresses='*'
