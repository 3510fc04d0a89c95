"""Loads: kinds of traffic as frozen dataclasses of their sizes, which act on a scene and tell what clients saw."""
