"""Tests for pgshoal.auth."""
