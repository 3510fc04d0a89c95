"""Targets: what a load is run against, put together and started by the kit."""
