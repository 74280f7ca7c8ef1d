"""The one savable object between measuring and reporting."""
