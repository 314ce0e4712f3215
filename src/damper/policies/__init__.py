"""A policy is weights plus how to read them: opening any file, acting, running episodes, scoring.

This file imports nothing, because the engine needs single modules of this room.
"""
