"""Lines of text: reading them safely, splitting them into words."""
