"""Tests for pgshoal.bench.results."""
