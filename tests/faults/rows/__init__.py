"""One file per row of the fault table; each defines ROW."""
