"""The parts of the server `apps.serve`: models, batches, HTTP and worker processes."""
