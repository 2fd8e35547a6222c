"""The tools of the server, one file each; see `apps.serving.tool`."""
