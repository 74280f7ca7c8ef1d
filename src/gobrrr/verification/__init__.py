"""Apply a fix, measure before and after in turns, compare what is computed. Fails closed."""
