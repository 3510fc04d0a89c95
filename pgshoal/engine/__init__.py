"""The engine: everything that happens per packet, behind one contract with a native and a pure-Python implementation."""
