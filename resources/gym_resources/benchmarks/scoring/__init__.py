"""What benchmarks' authors report of a run, as functions of its rollouts; all figures are in percent."""
