"""One declarative file per task; a module here is found by its `TASK`."""
