"""What a system on several machines needs: a broker for others, and files for the platforms of workers."""
