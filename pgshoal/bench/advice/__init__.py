"""What to do about measurements: how many workers, where the bottleneck is, what a larger machine would bring."""
