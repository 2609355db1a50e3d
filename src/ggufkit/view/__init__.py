"""`ggufkit view`: what a page shows of a model, the local server, and the page itself.

Functions here return plain dicts and lists, ready for JSON; `page/` holds the files that a browser
loads. What is true of a model without a page belongs in `inspection`, `checks` or `frameworks`.
"""
