"""Running trained networks on a CPU: backends, their choice, and predictors."""
