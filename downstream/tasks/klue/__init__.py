"""KLUE: tasks of Korean language understanding (Park et al. 2021, v1.1)."""
