"""A callable or a script, run through the phases of a session -> measurements and a timeline."""
