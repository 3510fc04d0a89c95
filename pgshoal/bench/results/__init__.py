"""What a run leaves behind: its book of rows, tables, CSV files, charts and the report."""
