"""Generators. parse.py reads the headers; each of the other modules writes one kind of file from the result."""
