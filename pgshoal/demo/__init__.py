"""The demonstration: PostgreSQL, the pooler in front of it and a short comparison, on any machine in a minute."""
