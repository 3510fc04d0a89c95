"""The PostgreSQL protocol without sockets or clock: bytes in, facts out."""
