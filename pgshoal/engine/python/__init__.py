"""The pure-Python twin of the engine: the same rules as the native one, byte for byte."""

from pgshoal.engine.python.engine import PythonEngine

__all__ = ["PythonEngine"]
