"""SQLite as Runebook uses it: connections, migrations, consistent copies, and reading what is damaged."""
