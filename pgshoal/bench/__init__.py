"""Measurements against PgBouncer on the reader's own machine; ratios of one run, never absolute numbers."""
