"""What an operator relies on, row by row, and the tests that show it."""
