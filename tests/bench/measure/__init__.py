"""Tests of what measures and judges a run."""
