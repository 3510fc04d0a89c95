"""Tests of pgshoal.bench.load."""
