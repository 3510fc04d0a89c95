"""Tests for pgshoal.demo."""
