#!/bin/sh
# A nightly report, run by `primacy run` on one of several hosts. The database is named by PGHOST, PGDATABASE and so on.
#
# The check and the report are one transaction. A leader that was replaced meanwhile, however long it was asleep, writes nothing.
set -u
: "${PRIMACY_ELECTION:?run this under primacy run}" "${PRIMACY_TOKEN:?run this under primacy run}"

# :'name' is quoted by psql itself, whatever is in it.
psql --no-psqlrc --quiet --output=/dev/null --set=ON_ERROR_STOP=1 \
    --set=election="$PRIMACY_ELECTION" --set=token="$PRIMACY_TOKEN" <<'SQL'
BEGIN;
SELECT primacy_fence(:'election', :'token');
INSERT INTO nightly_report (day, orders)
    SELECT current_date, count(*) FROM orders
    -- The next leader finds the report of this night already written.
    ON CONFLICT (day) DO NOTHING;
COMMIT;
SQL
status=$?

if [ "$status" -ne 0 ]; then
    # Refused, or the database went away before it said yes: rolled back unless the COMMIT itself was cut off.
    echo "nightly: no report from token $PRIMACY_TOKEN (psql ended with $status)" >&2
    exit 1
fi
