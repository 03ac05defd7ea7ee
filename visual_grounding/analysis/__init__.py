"""Numbers and pictures from outputs."""
