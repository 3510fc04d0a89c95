"""Tests for pgshoal.bench.advice."""
