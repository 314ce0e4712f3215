"""The evidence: experiments of the paper, their records, statistics, claims, tables, pages.

It uses the package and is not part of it: ``python -m paper`` runs in a checkout.
"""
