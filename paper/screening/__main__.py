"""``python -m paper.screening``."""

from paper.screening.run import main

main()
