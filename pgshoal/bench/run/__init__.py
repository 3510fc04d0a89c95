"""From declarations to rows: the matrix, its order, and the runner that works it off."""
