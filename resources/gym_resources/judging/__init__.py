"""What environments with a judge share: rows that say how it samples, labels, evaluations, comparisons."""
