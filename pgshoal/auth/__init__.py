"""Proofs of identity: passwords, md5, SCRAM in both roles, and channel binding."""
