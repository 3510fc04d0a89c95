"""The engine: everything that happens per packet, behind one contract, native or in pure Python."""
