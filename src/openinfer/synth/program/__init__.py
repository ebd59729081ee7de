"""The program that a bound graph becomes: values, tables, steps, kernels; its text, its rules, its liveness."""
