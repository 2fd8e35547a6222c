"""The tools of the server, one file each in a folder by what they are given; see `apps.serving.tool`."""
