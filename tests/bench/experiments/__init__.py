"""Tests for pgshoal.bench.experiments."""
