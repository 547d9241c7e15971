"""Prices and scores as a page and as tables, from values."""
