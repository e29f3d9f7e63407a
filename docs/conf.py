"""Sphinx: `make docs` builds the site; warnings are errors."""

from adlmh_jax.version import VERSION

project = "adlmh_jax"
author = "the adlmh_jax authors"
copyright = "the adlmh_jax authors"  # noqa: A001
release = version = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
nitpicky = False  # types of other packages are not looked up: the site builds without a network

autodoc_typehints = "none"  # the docstrings say what is what
autodoc_preserve_defaults = True  # as they are written
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
autosummary_generate = False

html_theme = "furo"
html_title = f"adlmh_jax {VERSION}"
html_show_sphinx = False
