# ruff: noqa: INP001 (Sphinx runs it)
"""Settings of Sphinx for the documentation site; tools/build_site.py assembles its pages."""

from ggufkit import __version__

project = "ggufkit"
copyright = "the ggufkit authors"  # noqa: A001 (Sphinx wants this name)
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
default_role = "code"  # docstrings quote code with single backticks
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "html_image"]
copybutton_exclude = ".linenos, .gp, .go"
html_theme = "furo"
html_title = "ggufkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#0f766e", "color-brand-content": "#0f766e"},
    "dark_css_variables": {"color-brand-primary": "#5eead4", "color-brand-content": "#5eead4"},
}
# Links to files and folders outside the site, and names of types of other packages.
suppress_warnings = ["myst.xref_missing"]
