"""What is wrong with a set-up: its packages, its machine, its files. Reports everything, and never fails itself."""
