"""The readable twins of the native kernels: plain Python and numpy, slow on purpose, and the specification.

Each twin has the name and the signature of its kernel. The parity table in ``tests/parity.py`` runs them against each other.
"""
