"""Whole sites of PgBouncer users that change over to pgshoal: the same files, the same clients, the same answers."""
