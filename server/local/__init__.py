"""Between processes of one user on one machine: announcements, the line, the bridge and the shared server."""
