"""What C-family languages share: how expressions and statements of the loop IR are printed, and the math runtime."""
