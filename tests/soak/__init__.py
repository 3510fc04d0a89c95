"""The isolation checker: clients that misbehave, and what must hold whatever they do; for tests and `make soak`."""
