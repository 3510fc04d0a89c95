"""pgshoal: a PostgreSQL connection pooler that is a drop-in for PgBouncer and uses every core."""

__version__ = "0.1.0"
