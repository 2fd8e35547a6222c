"""One declarative file per task; a module is registered by its `TASK`."""
