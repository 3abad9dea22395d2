"""Results as things to believe or not: reading and keeping them, caveats, comparisons, the report."""
