"""What C-family languages share: printers of loop IR expressions and statements, and the math runtime."""
