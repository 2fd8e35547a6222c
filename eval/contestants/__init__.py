"""What is compared: one module for each kind of model."""
