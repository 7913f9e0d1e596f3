#!/bin/sh
# A nightly report, run by `primacy run` on one of several hosts. MARIADB names the client program with its options; the
# password is best left to a file, or to MYSQL_PWD.
#
# The check and the report are one transaction. A leader that was replaced meanwhile, however long it was asleep, writes nothing.
set -u
: "${PRIMACY_ELECTION:?run this under primacy run}" "${PRIMACY_TOKEN:?run this under primacy run}"

# As hexadecimal digits a name needs no quoting, whatever is in it. A token is a number.
election=$(printf %s "$PRIMACY_ELECTION" | od -A n -t x1 | tr -d ' \n')

# In batch mode the client stops at the first error; the server then rolls back.
# shellcheck disable=SC2086 # words on purpose
${MARIADB:-mariadb} --batch --skip-column-names >/dev/null <<SQL
START TRANSACTION;
CALL primacy_fence(CONVERT(X'$election' USING utf8mb4), $PRIMACY_TOKEN);
-- The next leader finds the report of this night already written.
INSERT IGNORE INTO nightly_report (day, orders) SELECT CURRENT_DATE, COUNT(*) FROM orders;
COMMIT;
SQL
status=$?

if [ "$status" -ne 0 ]; then
    # Refused, or the database went away before it said yes: rolled back unless the COMMIT itself was cut off.
    echo "nightly: no report from token $PRIMACY_TOKEN (the client ended with $status)" >&2
    exit 1
fi
