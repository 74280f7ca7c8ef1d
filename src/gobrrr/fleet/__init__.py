"""Traces of many ranks -> small tables in a folder -> who waits for whom, and why.

The folder is the interface: ``build`` maps each trace to tables and merges them, ``query`` asks
them, ``verdict`` is what a report shows. Nothing here is imported before it is used, so that the
packages of ``gobrrr[fleet]`` are wanted by those who want a fleet.
"""
