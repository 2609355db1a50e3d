"""The local server of `ggufkit view`: who may ask, what may be asked, and limits for both.

`server` listens, `connections` limits slow clients, `guard` refuses requests of others, and
`routes` calls the functions of the views. What a view shows belongs in `view` itself.
"""
