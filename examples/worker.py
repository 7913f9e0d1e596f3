#!/usr/bin/env python3
"""Takes jobs out of a table, run by `primacy run` on one of several hosts.

Each job and the check that this process still leads are one transaction. PGHOST, PGDATABASE and so on name the database.
"""

import os
import sys

import psycopg2

ELECTION = os.environ["PRIMACY_ELECTION"]
TOKEN = int(os.environ["PRIMACY_TOKEN"])
STALE = "PR001"


def work_on_next(connection):
    """Does one job. False if there is none."""
    # `with` commits, or rolls back if anything is raised.
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT primacy_fence(%s, %s)", (ELECTION, TOKEN))
        cursor.execute("SELECT id, payload FROM job WHERE result IS NULL ORDER BY id LIMIT 1")
        job = cursor.fetchone()
        if job is None:
            return False
        number, payload = job
        cursor.execute("UPDATE job SET result = %s, token = %s WHERE id = %s", (payload.upper(), TOKEN, number))
        return True


def main():
    connection = psycopg2.connect("")
    done = 0
    try:
        while work_on_next(connection):
            done += 1
    except psycopg2.Error as error:
        if error.pgcode != STALE:
            raise
        # Nothing of this transaction was written, and nothing of the next would be.
        sys.exit(f"worker: another leader is in charge; stopped after {done} jobs: {error.diag.message_primary}")
    print(f"{done} jobs done")


if __name__ == "__main__":
    main()
