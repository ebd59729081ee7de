"""What is checked while a step runs, before memory is touched: decided here for every step, and printed elsewhere."""
