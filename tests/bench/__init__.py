"""Tests for pgshoal.bench."""
