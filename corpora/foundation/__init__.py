"""Ground floor of every package: errors, configuration, files, commands, the machine; no text, no model."""
