"""A diagnosis -> terminal, JSON, Markdown. A report computes nothing: it shows what was found."""
