"""`ggufkit report`: what `view` shows of models, as one static HTML or Markdown file.

`contents` gathers the facts from `view`, `page` and `markdown` write them, `drawings` makes the
pictures. A fact about a model belongs in `view` or below, so that page and report agree.
"""
