"""A policy is weights plus how to read them: opening any file, acting, running episodes, scoring.

``opening`` recognises a source and hands it to the reader of its kind; ``policy`` acts;
``episodes`` runs a policy in its environment; ``evaluate`` scores it. This file imports nothing,
because the engine needs single modules of this room.
"""
