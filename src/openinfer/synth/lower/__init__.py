"""From a bound graph to a program."""
