"""The parts of the server `apps.serve`: what is served, how requests become batches, and how they come and go."""
