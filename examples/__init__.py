"""What the library does in networks of other kinds, and in several processes."""
