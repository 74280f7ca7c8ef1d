"""Changes that make a step faster: one file each or one per family, all listed in ``catalogue``.

The list is not here: what needs one part of this room, a trace's fusion for instance, would import
every fix.
"""
