"""Speed, as ratios against named baselines; each benchmark writes its table into the docs."""
