"""``python -m adlmh_jax`` is the command line."""

import sys

from adlmh_jax.cli import main

sys.exit(main())
