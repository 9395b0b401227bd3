"""Values: what a memory is, and everything that names or describes one."""
