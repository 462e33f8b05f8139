"""Pure projections for people: tables, bars, sentences and report forms, made of values and given back as values."""
