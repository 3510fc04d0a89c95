"""The relay's contract, on both engines, without sockets."""
