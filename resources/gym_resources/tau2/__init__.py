"""The domains of tau2-bench: customer service with tools, a policy, a database and a simulated customer."""
