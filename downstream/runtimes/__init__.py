"""How networks are run: descriptions, graphs, backends and the choice among them."""
