"""What to change, each remedy computed on the calls that were measured; `whatif` puts them in order."""
