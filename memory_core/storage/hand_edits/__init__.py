"""What people and other programs do to the files themselves: noticed, understood, recorded."""
