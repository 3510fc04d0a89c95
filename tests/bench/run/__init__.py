"""Tests for pgshoal.bench.run."""
