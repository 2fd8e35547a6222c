"""BERT in 8-bit weights for AVX-512 VNNI, compiled by Numba."""
