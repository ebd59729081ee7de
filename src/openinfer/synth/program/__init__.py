"""The program that a bound graph is lowered to: values, tables, steps, kernels; its text, verifier and liveness."""
