"""What benchmarks of one family share: how their records become rows, in which languages there are sets."""
