"""What a run cost and whether it may count: processors, memory, connections, and the checks over them."""
