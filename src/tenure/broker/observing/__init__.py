"""Numbers about a broker, and what readers of its log hold on to."""
