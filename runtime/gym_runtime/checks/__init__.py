"""What is checked about environments: their contract, their throughput, recorded rewards."""
