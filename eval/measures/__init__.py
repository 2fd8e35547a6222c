"""What is measured beside the score: robustness to noise, and cost."""
