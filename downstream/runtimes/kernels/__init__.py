"""Our own 8-bit kernels for BERT on processors with AVX-512 VNNI (extra `kernels`)."""
