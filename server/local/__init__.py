"""Between processes of one user on one machine: the channel, requests over it, the bridge, the shared server."""
