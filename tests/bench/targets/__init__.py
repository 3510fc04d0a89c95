"""Tests for pgshoal.bench.targets."""
