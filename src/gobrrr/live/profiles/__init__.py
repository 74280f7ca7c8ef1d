"""The profilers' events of measured steps -> a timeline."""
