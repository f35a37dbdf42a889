"""Toy experiments: what a reward teaches a policy, where the right answer is known.

``make experiments``, or ``python -m experiments t1 t3``.
"""
