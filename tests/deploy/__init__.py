"""Tests for deploy."""
