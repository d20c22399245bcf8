"""parse.py reads the headers; every other module writes one kind of file from what it found."""
