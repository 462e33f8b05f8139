"""The dashboard: read-only pages of a cluster over HTTP, kept current by server-sent events.

Starlette serves, Jinja2 fills the templates, htmx and uPlot (in `static/`, with their licences) run in the browser.
"""
