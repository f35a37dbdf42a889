"""Data sets: from released files to training rows, and reading and writing of files of rows."""
