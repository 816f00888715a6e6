"""Small scripts for runs of the lab."""
