"""Tests for pgshoal.wire."""
